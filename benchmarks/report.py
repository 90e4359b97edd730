"""What comparing and reporting many runs takes: `python -m benchmarks.report [RUNS]`, 10,000.

The records are made up, as large as those of ten epochs of CIFAR-10: two frameworks, three
platforms, three optimizers, and as many seeds as it takes. The goal for 10,000: comparing and
writing the report, without reading the records, within 10 seconds on one core; all within 1 GB.
"""

import hashlib
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import count, islice, product
from pathlib import Path
from typing import Any

import numpy as np

from parity.comparison import compare
from parity.config import TrainConfig
from parity.report.__main__ import write
from parity.results import read
from parity.runs import Epoch, RunRecord, encode_losses, write_record

NUM_EPOCHS = 10
NUM_STEPS = 391
ENVIRONMENT = {f"versions.package{i}": f"1.{i}" for i in range(20)}


def main(num_runs: int) -> None:
    """Print the seconds that reading, comparing and reporting take, and the peak memory."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for record in islice(_records(folder / "runs"), num_runs):
            record.path.mkdir(parents=True)
            write_record(record)
        results = _timed("read", lambda: read([folder / "runs"]).results)
        comparison = _timed("compare", lambda: compare(results, threshold=70.0))
        page = _timed("report", lambda: write(comparison, folder / "report"))
        size = page.stat().st_size
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{num_runs:,} runs: peak memory {peak / 1024:.0f} MB, page {size / 1e6:.2f} MB")


def _timed(name: str, work: Callable[[], Any]) -> Any:
    begin, cpu = time.perf_counter(), time.process_time()
    result = work()
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    print(f"{name}: {seconds:.1f} s ({cpu:.1f} s of CPU time)", flush=True)
    return result


def _records(folder: Path):
    rng = np.random.default_rng(0)
    losses = np.linspace(2.3, 0.7, NUM_STEPS, dtype=np.float32)
    cases = tuple(
        product(("torch", "jax"), ("cpu", "cpu:avx2", "cpu:sse4"), ("adam", "sgd", "rmsprop"))
    )
    for i in count():
        seed, (framework, platform, optimizer) = i // len(cases), cases[i % len(cases)]
        accuracy = 78 - 20 * np.exp(-np.arange(NUM_EPOCHS) / 2) + rng.normal(0, 0.3, NUM_EPOCHS)
        own = {"first_epoch": 1, "framework": framework, "platform": platform}
        name = f"{framework}-{platform}-{optimizer}-{seed}"
        yield RunRecord(
            config=TrainConfig(epochs=NUM_EPOCHS, optimizer=optimizer, seed=seed),
            environments=(own | ENVIRONMENT,),
            fingerprints={
                "data": _sha256("data"),
                "stream": _sha256(f"stream {seed}"),
                "initial_weights": _sha256(f"weights {seed}"),
            },
            status="finished",
            epochs=tuple(
                Epoch(
                    epoch=epoch,
                    train_loss=2.0 - epoch / 10,
                    train_accuracy=float(percent) - 4,
                    test_loss=1.8 - epoch / 10,
                    test_accuracy=float(percent),
                    weights_sha256=_sha256(f"{name} {epoch}"),
                    train_seconds=1.0,
                    test_seconds=0.1,
                    step_losses=encode_losses(losses + np.float32(rng.normal(0, 1e-3))),
                )
                for epoch, percent in enumerate(accuracy, start=1)
            ),
            path=folder / name,
        )


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
