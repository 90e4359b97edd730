"""Train commands under the clock are those that users type."""

import pytest

from benchmarks import whole_runs
from parity.errors import RunFailed

SMALL = ("--dataset", "digits", "--train-size", "192", "--test-size", "64", "--epochs", "1")


def test_the_clock_stops_at_the_first_step():
    # With a million epochs it would never return.
    seconds = whole_runs.seconds_to_first_step("torch", [*SMALL[:-1], "1000000"], {})
    assert 0.5 < seconds < 200  # importing PyTorch alone takes longer; the test's own limit is 300


def test_a_command_that_fails_is_shown(capfd):
    with pytest.raises(RunFailed, match="ended before its first step: see above"):
        whole_runs.seconds_to_first_step("torch", ["--lr", "-1"], {})
    assert "--lr is -1.0" in capfd.readouterr().err
    with pytest.raises(RunFailed, match="failed: see above"):
        whole_runs.whole_run("torch", ["--lr", "-1"], {})


def test_a_whole_run_yields_its_memory_and_times():
    found = whole_runs.whole_run("torch", SMALL, {})
    assert 1e8 < found["peak_bytes"] < 1e10  # PyTorch's libraries alone are more than 100 MB
    assert found["train_s"] > 0
    assert found["test_s"] > 0
