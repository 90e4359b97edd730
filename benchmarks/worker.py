"""One case in its own process: it does a turn of its work when asked, and says what it measured.

    python -m benchmarks.worker '{"work": "steps", "subject": "ours", "framework": "torch", ...}'

writes a line of JSON when it is warm (what it runs on); then reads a line, does a turn, writes its
figures as JSON, and so on until its input ends. See benchmarks.ruler.
"""

import importlib
import json
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import repeat
from pathlib import Path
from typing import Any, NoReturn, Protocol

from benchmarks import width
from parity.config import TrainConfig

WARM_UP_STEPS = 3
"""The first one compiles; the next ones fill caches and settle threads."""

FEW_RUNS = 18
"""The warm-up of a comparison: one of each kind."""


class Subject(Protocol):
    """What is timed: one of ours, or a peer."""

    def environment(self) -> dict[str, Any]:
        """Return what it runs on, as JSON values."""
        ...

    def batches(self) -> Any:
        """Return an iterator over an epoch's training batches."""
        ...

    def train_step(self, batch: Any) -> None:
        """Do an update; return when the loss is on the host."""
        ...

    def epochs(self, report: Callable[[float, float], None]) -> None:
        """Train and evaluate epoch after epoch, and report the seconds of both."""
        ...


def make_subject(request: dict[str, Any]) -> Subject:
    """Return what a request names.

    Args:
        request: subject (ours, article_way, plain_jax), framework, config (of a TrainConfig); also
            tf32 (let products be rounded) and width (of the network).
    """
    config = TrainConfig.from_json(request["config"])
    if (factor := request.get("width", 1)) != 1:
        width.widen(factor)
    module = importlib.import_module(f"benchmarks.{request['subject']}")
    subject = module.Subject(config, request["framework"])
    if request.get("tf32"):
        allow_tf32(request["framework"])
    return subject


def answer(values: dict[str, Any]) -> None:
    """Write a line, and wait until a turn is asked for; end where none ever will be."""
    print(json.dumps(values), flush=True)
    if not sys.stdin.readline():
        sys.exit()


def steps(request: dict[str, Any]) -> NoReturn:
    """Time a batch, a step, and what the machine can do, in every turn."""
    from benchmarks.rates import Rates

    subject, config = make_subject(request), TrainConfig.from_json(request["config"])
    batches = (batch for _ in repeat(None) for batch in subject.batches())
    full = (batch for batch in batches if len(batch[0]) == config.batch_size)
    dtype = "float64" if config.needs_float64 else "float32"
    rates = Rates(request["framework"], dtype, config.device)
    for _ in range(WARM_UP_STEPS):
        subject.train_step(next(full))
    wide = request.get("width", 1) != 1  # and then not what environment() tries out
    answer({} if wide else subject.environment())
    while True:
        begin = time.thread_time()  # a batch costs the core that makes it, whoever waits
        batch = next(full)
        made = time.thread_time()
        started = time.perf_counter()
        subject.train_step(batch)
        done = time.perf_counter()
        figures = {"batch_ms": 1e3 * (made - begin), "step_ms": 1e3 * (done - started)}
        answer(figures | rates.measure())


def epochs(request: dict[str, Any]) -> None:
    """Time epochs, data included, and the evaluation after each; the first one is warm-up."""
    subject = make_subject(request)
    warm = False

    def report(train_s: float, test_s: float) -> None:
        nonlocal warm
        answer({"train_s": train_s, "test_s": test_s} if warm else subject.environment())
        warm = True

    subject.epochs(report)


def comparing(request: dict[str, Any]) -> NoReturn:
    """Time reading and comparing `runs` records, which are made up."""
    from benchmarks.made_up_runs import write_runs
    from parity.comparison import compare
    from parity.results import read

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_runs(folder / "few", FEW_RUNS)
        compare(read([folder / "few"]).results, threshold=70.0)
        write_runs(folder / "all", request["runs"])
        answer({})
        while True:
            begin = time.perf_counter()
            results = read([folder / "all"]).results
            was_read = time.perf_counter()
            compare(results, threshold=70.0)
            done = time.perf_counter()
            answer({"read_s": was_read - begin, "compare_s": done - was_read})


WORK = {"steps": steps, "epochs": epochs, "comparing": comparing}


def allow_tf32(framework: str) -> None:
    """Let the framework round the operands of float32 products to 11 bits where it can."""
    module = importlib.import_module(framework)
    if framework == "torch":
        module.backends.fp32_precision = "tf32"
    else:
        module.config.update("jax_default_matmul_precision", "tensorfloat32")


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    WORK[asked["work"]](asked)
