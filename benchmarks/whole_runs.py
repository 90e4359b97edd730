"""Train commands as a user types them: how long until the first step, and how much memory."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from parity.errors import RunFailed
from parity.runs import read_record

KIB = 1024


def seconds_to_first_step(framework: str, flags: Sequence[str], variables: Mapping[str, str]):
    """Return how long a train command takes from its start until the first loss is known."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.first_step", framework, *flags]
        command += ["--out", f"{folder}/run"]
        begin = time.perf_counter()
        process = subprocess.Popen(command, env=os.environ | variables, stdout=subprocess.PIPE)
        assert process.stdout is not None
        line = process.stdout.readline()
        seconds = time.perf_counter() - begin
        process.communicate()
    if line != b"first step\n":
        raise RunFailed(f"{' '.join(command)} ended before its first step: see above.")
    return seconds


def whole_run(framework: str, flags: Sequence[str], variables: Mapping[str, str]):
    """Train by a train command to the end, and return its peak memory and its last epoch's times.

    Returns:
        peak_bytes of resident memory, train_s and test_s by the run's own record.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", f"{framework}_impl.train", *flags, "--quiet"]
        command += ["--out", f"{folder}/run"]
        process = subprocess.Popen(command, env=os.environ | variables)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RunFailed(f"{' '.join(command)} failed: see above.")
        epoch = read_record(Path(folder) / "run").epochs[-1]
    return {
        "peak_bytes": KIB * usage.ru_maxrss,
        "train_s": epoch.train_seconds,
        "test_s": epoch.test_seconds,
    }
