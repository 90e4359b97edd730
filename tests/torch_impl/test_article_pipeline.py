"""The article's pipeline, in processes of its own: its workers are forked."""

import json
import subprocess
import sys

import pytest

from parity import provenance
from parity.results import read

SMALL = ("--dataset", "digits", "--train-size", "96", "--test-size", "16", "--batch-size", "32")


def train(out, *flags, framework="torch"):
    command = [sys.executable, "-m", f"{framework}_impl.train", "--pipeline", "article", *SMALL]
    command += ["--threads", "1", "--out", str(out), *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=200)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("article")
    for name, workers in (("alone", 0), ("again", 0), ("helped", 4)):
        done = train(folder / name, "--epochs", "2", "--workers", str(workers))
        assert done.returncode == 0, done.stderr
    return folder


def record(folder, name):
    return json.loads((folder / name / "record.json").read_text())


def test_a_run_repeats_itself_to_the_bit(runs):
    alone, again = (record(runs, name) for name in ("alone", "again"))
    assert [e["weights_sha256"] for e in alone["epochs"]] == [
        e["weights_sha256"] for e in again["epochs"]
    ]
    assert alone["fingerprints"] == again["fingerprints"]


def test_workers_draw_from_other_streams_and_the_comparison_says_so(runs):
    alone, helped = (record(runs, name) for name in ("alone", "helped"))
    assert alone["epochs"][0]["step_losses"] != helped["epochs"][0]["step_losses"]
    assert alone["fingerprints"]["initial_weights"] == helped["fingerprints"]["initial_weights"]
    results = read([runs / "alone", runs / "helped"]).results
    assert provenance.comparable_sets(results) == [(0,), (1,)]
    (obstacle,) = provenance.obstacles(results)
    assert obstacle.field == "stream"
    assert [cause.field for cause in obstacle.causes] == ["workers"]


def test_the_initial_weights_are_pytorchs_own_for_the_seed():
    # The article's network, made as its notebooks make it.
    import torch
    from torch import nn

    from torch_impl.article_pipeline import ArticlePipeline

    before = torch.get_rng_state()
    made = ArticlePipeline(42).initial_weights()
    assert torch.equal(torch.get_rng_state(), before)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(42)
        layers = {
            **{"conv1": nn.Conv2d(3, 32, 3, padding=1), "conv2": nn.Conv2d(32, 64, 3, padding=1)},
            **{"conv3": nn.Conv2d(64, 128, 3, padding=1)},
            **{"fc1": nn.Linear(2048, 256), "fc2": nn.Linear(256, 10)},
        }
    for name, layer in layers.items():
        for part, tensor in layer.state_dict().items():
            assert made[f"{name}.{part}"].tobytes() == tensor.numpy().tobytes()


def test_what_it_cannot_do_is_refused(tmp_path):
    jax = train(tmp_path / "jax", framework="jax")
    assert (jax.returncode, jax.stderr.count("\n")) == (2, 1)
    assert "which jax_impl has not. Leave it out, or use torch_impl." in jax.stderr


def test_a_run_that_was_stopped_cannot_go_on(runs, tmp_path):
    import shutil

    folder = tmp_path / "stopped"
    shutil.copytree(runs / "alone", folder)
    content = record(runs, "alone") | {"status": "running"}
    (folder / "record.json").write_text(json.dumps(content))
    command = [sys.executable, "-m", "torch_impl.train", "--resume", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "no checkpoint keeps their state. Start a new run." in done.stderr
