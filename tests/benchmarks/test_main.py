"""The one command, from beginning to end, and its refusals."""

import json
import subprocess
import sys

import pytest

from benchmarks import table
from parity.console import WIDTH


def command(*flags: str) -> subprocess.CompletedProcess[str]:
    call = [sys.executable, "-m", "benchmarks", *flags]
    return subprocess.run(call, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--data-dir", "nowhere"), "nowhere holds no cifar-10-batches-bin."),
        (("--threads", "0"), "--threads is 0, but this process has"),
        (("--out", f"{__file__}/a.json"), f"{__file__}/a.json cannot be written"),
    ],
)
def test_a_mistake_is_said_before_anything_is_measured(flags, message):
    done = command(*flags)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {message}")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_everything_is_measured_and_shown(tmp_path):
    out = tmp_path / "figures.json"
    done = command("--quick", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= WIDTH
    report = json.loads(out.read_text())
    assert all(target.found.median > 0 for target in table.targets(report))
    assert all(low >= 0 and high >= 0 for low, high in report["loads"].values())
    assert report["machine"]["versions"]["torch"]
