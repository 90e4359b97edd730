"""What `python -m benchmarks` measures, phase by phase, as JSON values."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import ruler, whole_runs
from parity.flags import flags as as_flags
from parity.progress import duration

CASES: dict[str, dict[str, Any]] = {
    "article's way": {"subject": "article_way", "framework": "torch"},
    "torch_impl": {"subject": "ours", "framework": "torch"},
    "torch_impl exact": {"subject": "ours", "framework": "torch", "arithmetic": "exact"},
    "plain JAX": {"subject": "plain_jax", "framework": "jax"},
    "jax_impl": {"subject": "ours", "framework": "jax"},
    "jax_impl exact": {"subject": "ours", "framework": "jax", "arithmetic": "exact"},
}
"""The peers and ours, by the names that the tables have for them."""

OURS = {"torch_impl": "torch", "jax_impl": "jax"}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured."""

    step_rounds: int = 15
    epoch_rounds: int = 6
    start_rounds: int = 3
    turn_images: int = 3_125
    """Of a turn's epoch; 16 of them are CIFAR-10's 50,000."""
    longer_images: int = 12_500
    longer_rounds: int = 2
    whole_images: int = 50_000
    widths: tuple[int, ...] = (1, 2, 3)
    width_rounds: int = 7
    runs: tuple[int, ...] = (100, 1_000, 10_000)
    compare_rounds: int = 3


WHOLE = Plan()

QUICK = Plan(
    step_rounds=1,
    epoch_rounds=1,
    start_rounds=1,
    turn_images=150,
    longer_images=300,
    longer_rounds=1,
    whole_images=600,
    widths=(1, 2),
    width_rounds=1,
    runs=(10, 20),
    compare_rounds=1,
)
"""Shows that everything works; its figures mean nothing."""

TEST_SHARE = 5
"""Training images for one of testing, as in CIFAR-10."""


class Session:
    """Measures by a plan on some threads, and says how far it is."""

    def __init__(
        self, plan: Plan, *, threads: int, data_dir: Path, say: Callable[[str], object]
    ) -> None:
        self._plan, self._threads, self._data_dir, self._say = plan, threads, data_dir, say
        self._begin = time.monotonic()
        self._said = 0.0
        self._done = 0.0
        self._planned = sum(planned_steps(plan).values())
        self.loads: dict[str, list[float]] = {}
        """Load averages before and after each phase; the cases themselves are part of them."""

    def measure(self) -> dict[str, Any]:
        """Return all figures by phase."""
        figures = {}
        for name in planned_steps(self._plan):
            with self._loads(name):
                figures[name] = getattr(self, name)()
        return figures

    def steps(self) -> dict[str, Any]:
        """Time a step, a batch and the machine's rates of every case."""
        requests = {name: self._request("steps", **case) for name, case in CASES.items()}
        return self._interleaved("steps", requests, self._plan.step_rounds)

    def epochs(self) -> dict[str, Any]:
        """Time epochs of every case, data included, and the evaluation after each."""
        requests = {
            name: self._request("epochs", images=self._plan.turn_images, **case)
            for name, case in CASES.items()
        }
        return self._interleaved("epochs", requests, self._plan.epoch_rounds)

    def longer_epochs(self) -> dict[str, Any]:
        """Time epochs of more images."""
        requests = {
            name: self._request("epochs", images=self._plan.longer_images, **CASES[name])
            for name in OURS
        }
        return self._interleaved("longer_epochs", requests, self._plan.longer_rounds)

    def widths(self) -> dict[str, Any]:
        """Time steps of wider networks."""
        requests = {
            f"{name} x {width}": self._request("steps", width=width, **CASES[name])
            for name in OURS
            for width in self._plan.widths
        }
        return self._interleaved("widths", requests, self._plan.width_rounds)

    def first_steps(self) -> dict[str, list[float]]:
        """Time train commands until their first step; JAX without a cache, and with a warm one."""
        seconds: dict[str, list[float]] = {"torch_impl": [], "jax_impl, cold": [], "jax_impl": []}
        for _ in range(self._plan.start_rounds):
            with tempfile.TemporaryDirectory() as cache:
                variables = {"JAX_COMPILATION_CACHE_DIR": cache}
                for name, times in seconds.items():  # the cold one warms the cache
                    framework = OURS[name.split(",")[0]]
                    times.append(
                        whole_runs.seconds_to_first_step(framework, self._flags(), variables)
                    )
                    self._note("first_steps", len(seconds) * self._plan.start_rounds)
        return seconds

    def whole_runs(self) -> dict[str, Any]:
        """Train one epoch of all images by the train commands."""
        found = {}
        with tempfile.TemporaryDirectory() as cache:
            for name, framework in OURS.items():
                flags = [*self._flags(), *as_flags(_sizes(self._plan.whole_images))]
                variables = {"JAX_COMPILATION_CACHE_DIR": cache}
                if framework == "jax":  # compiles both steps, so that the time is training's
                    small = [*self._flags(), *as_flags(_sizes(self._plan.whole_images % 128 + 128))]
                    whole_runs.whole_run(framework, small, variables)
                found[name] = whole_runs.whole_run(framework, flags, variables)
                self._note("whole_runs", len(OURS))
        return found

    def comparing(self) -> dict[str, Any]:
        """Time the comparison of made-up runs."""
        requests = {
            str(runs): {"work": "comparing", "runs": runs, "framework": "torch"}
            | {"config": {"threads": self._threads}}
            for runs in self._plan.runs
        }
        return self._interleaved("comparing", requests, self._plan.compare_rounds)

    def _request(
        self,
        work: str,
        *,
        subject: str,
        framework: str,
        images: int | None = None,
        arithmetic: str = "float32",
        width: int = 1,
    ) -> dict[str, Any]:
        config = {"threads": self._threads, "data_dir": str(self._data_dir)}
        config |= {"arithmetic": arithmetic} | _sizes(images)
        own = {"work": work, "subject": subject, "framework": framework, "width": width}
        return own | {"config": config}

    def _flags(self) -> list[str]:
        settings = {"threads": self._threads, "data_dir": str(self._data_dir), "epochs": 1}
        return as_flags(settings)

    def _interleaved(
        self, phase: str, requests: Mapping[str, Mapping[str, Any]], rounds: int
    ) -> dict[str, Any]:
        turns = len(requests) * (rounds + 1)  # to get warm takes about as long as a turn
        with ruler.cases(requests, lambda: self._note(phase, turns)) as cases:
            ruler.interleave(cases, rounds, lambda: self._note(phase, turns))
            return {
                case.name: {"environment": case.environment}
                | {name: case.values(name) for name in case.turns[0]}
                for case in cases
            }

    def _note(self, phase: str, turns: int) -> None:
        """Count one of a phase's turns as done, and say now and then how much is left."""
        self._done += planned_steps(self._plan)[phase] / turns
        passed = time.monotonic() - self._begin
        if passed - self._said > 15:
            self._said = passed
            left = passed * (self._planned / self._done - 1)
            share = 100 * self._done / self._planned
            self._say(f"{share:3.0f} %  {phase.replace('_', ' ')}, {duration(left)} left")

    @contextmanager
    def _loads(self, phase: str) -> Iterator[None]:
        before = os.getloadavg()[0]
        yield
        self.loads[phase] = [before, os.getloadavg()[0]]


def planned_steps(plan: Plan) -> dict[str, float]:
    """Return about how many steps of torch_impl each phase takes as long as, in order."""
    per_image = 1.1 / 128  # with its share of evaluation
    turn = sum(2 if "exact" in name else 1.5 for name in CASES)
    comparisons = sum(plan.runs) / 100 * (plan.compare_rounds + 1)
    return {
        "steps": (turn + 6) * (plan.step_rounds + 20),
        "epochs": turn * (plan.epoch_rounds + 1) * plan.turn_images * per_image,
        "longer_epochs": 2.5 * (plan.longer_rounds + 1) * plan.longer_images * per_image,
        "widths": 2 * (plan.width_rounds + 15) * sum(width**1.5 for width in plan.widths),
        "first_steps": 3 * 60 * plan.start_rounds,
        "whole_runs": 3 * plan.whole_images * per_image,
        "comparing": comparisons,
    }


def _sizes(images: int | None) -> dict[str, Any]:
    if images is None:
        return {}
    return {"train_size": images, "test_size": images // TEST_SHARE}
