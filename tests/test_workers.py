"""With our own streams, the number of workers changes no bit of a run."""

import json
import subprocess
import sys

import pytest

SMALL = ("--dataset", "digits", "--train-size", "96", "--test-size", "16", "--batch-size", "32")


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_runs_with_0_and_4_workers_end_in_the_same_weights(framework, tmp_path):
    digests, streams = set(), set()
    for workers in (0, 4):
        out = tmp_path / str(workers)
        flags = ("--epochs", "1", "--threads", "1", "--workers", str(workers), "--out", str(out))
        command = [sys.executable, "-m", f"{framework}_impl.train", *SMALL, *flags]
        subprocess.run(command, check=True, capture_output=True, timeout=200)
        record = json.loads((out / "record.json").read_text())
        assert record["config"]["workers"] == workers
        digests.add((record["epochs"][0]["weights_sha256"], record["epochs"][0]["step_losses"]))
        streams.add(record["fingerprints"]["stream"])
    assert len(digests) == len(streams) == 1
