"""The ruler: every case is a process of its own, and all take turns, A B A B.

A noisy machine is then noisy for all alike, so the result is a ratio of two cases within a round:
its median over the rounds, and its least and largest. Warm-up is each worker's own and left out.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from parity import platforms
from parity.errors import RunFailed

NAMES = {"jax": "JAX", "torch": "PyTorch"}

SECONDS_BETWEEN = 0.05
"""Until a case's threads have ceased to spin and leave the cores to the next one."""


class Spread(NamedTuple):
    """What some rounds gave."""

    median: float
    least: float
    largest: float


def spread(values: Sequence[float]) -> Spread:
    """Return the median of values, and their range."""
    return Spread(statistics.median(values), min(values), max(values))


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Return how many times theirs ours are, round by round."""
    return spread([a / b for a, b in zip(ours, theirs, strict=True)])


def environment_of(request: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment of a case's process: the platform's and the threads' variables."""
    config = request["config"]
    platform = platforms.parse(config.get("device", "cpu"), request["framework"])
    kernels = platforms.Kernels(tf32=request.get("tf32", False))
    ours = platforms.variables(platform, config["threads"], kernels)
    return {name: v for name, v in (os.environ | ours).items() if v is not None}


class Case:
    """A process that does one turn of its work when asked. See benchmarks.worker."""

    def __init__(self, name: str, request: Mapping[str, Any]) -> None:
        self.name, self.request = name, request
        self.turns: list[dict[str, float]] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", json.dumps(request)],
            env=environment_of(request),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.environment: dict[str, Any] = {}

    def ready(self) -> None:
        """Wait until the worker is warm."""
        self.environment = self._answer()

    def turn(self) -> None:
        """Let the worker do a turn, and keep what it measured."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self.turns.append(self._answer())
        time.sleep(SECONDS_BETWEEN)

    def values(self, name: str) -> list[float]:
        """Return one of the figures, a value a turn."""
        return [turn[name] for turn in self.turns]

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            raise RunFailed(f"The case {self.name} ended with status {status}: see above.")
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


@contextmanager
def cases(
    requests: Mapping[str, Mapping[str, Any]], done: Callable[[], object] = lambda: None
) -> Iterator[list[Case]]:
    """Give warm cases, started one after the other, and end them afterwards.

    Args:
        requests: By name. See benchmarks.worker.
        done: Hears of each case that is warm.
    """
    with ExitStack() as stack:
        started = []
        for name, request in requests.items():
            case = Case(name, request)
            stack.callback(case.close)
            case.ready()
            done()
            started.append(case)
        yield started


def interleave(
    started: Sequence[Case], rounds: int, done: Callable[[], object] = lambda: None
) -> None:
    """Let all cases take a turn in each round; `done` hears of every turn."""
    for _ in range(rounds):
        for case in started:
            case.turn()
            done()


def today() -> str:
    """Return the date of a measurement, as tables show it."""
    return time.strftime("%Y-%m-%d")


def machine(threads: int) -> dict[str, Any]:
    """Return what the figures were measured on, as JSON values."""
    packages = ("jax", "jaxlib", "flax", "torch", "torchvision")
    return platforms.fingerprint(platforms.Platform("cpu"), threads, packages)
