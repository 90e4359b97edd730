"""Made-up runs, as large as those of ten epochs of CIFAR-10: what comparisons are timed on.

Two frameworks, three platforms, three optimizers, and as many seeds as it takes.
"""

import hashlib
from collections.abc import Iterator
from itertools import count, islice, product
from pathlib import Path

import numpy as np

from parity.config import TrainConfig
from parity.runs import Epoch, RunRecord, encode_losses, write_record

NUM_EPOCHS = 10
NUM_STEPS = 391
ENVIRONMENT = {f"versions.package{i}": f"1.{i}" for i in range(20)}


def write_runs(folder: Path, num_runs: int) -> None:
    """Write the records of so many runs into folders of their own."""
    for record in islice(_records(folder), num_runs):
        record.path.mkdir(parents=True)
        write_record(record)


def _records(folder: Path) -> Iterator[RunRecord]:
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
