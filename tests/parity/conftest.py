"""Synthetic runs, in memory: what the comparison's tests compare."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.config import TrainConfig
from parity.results import Result, from_record
from parity.runs import Epoch, RunRecord, Status, encode_losses

ACCURACY = (60.0, 65.0, 68.0, 70.0, 72.0)
NUM_STEPS = 4


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def record(
    name: str = "run",
    *,
    accuracy: Sequence[float] = ACCURACY,
    train_accuracy: Sequence[float] | None = None,
    train_loss: Sequence[float] | None = None,
    steps: np.ndarray | None = None,
    digests: Sequence[str] | None = None,
    framework: str = "torch",
    platform: str = "cpu",
    status: Status = "finished",
    failure: dict[str, Any] | None = None,
    fingerprints: dict[str, str] | None = None,
    environment: dict[str, Any] | None = None,
    **config: Any,
) -> RunRecord:
    """Return a record of `len(accuracy)` epochs of `NUM_STEPS` steps each."""
    settings = TrainConfig(**({"epochs": max(len(accuracy), 1)} | config))
    num_epochs, kind = len(accuracy), np.dtype(settings.arithmetic)
    if steps is None:
        steps = np.linspace(2.3, 0.7, num_epochs * NUM_STEPS).astype(kind)
    epochs = tuple(
        Epoch(
            epoch=i + 1,
            train_loss=2.0 - i / 4 if train_loss is None else train_loss[i],
            train_accuracy=accuracy[i] - 4 if train_accuracy is None else train_accuracy[i],
            test_loss=1.8 - i / 4,
            test_accuracy=accuracy[i],
            weights_sha256=sha256(f"weights {i}") if digests is None else digests[i],
            train_seconds=1.0,
            test_seconds=0.1,
            step_losses=encode_losses(steps[i * NUM_STEPS : (i + 1) * NUM_STEPS]),
        )
        for i in range(num_epochs)
    )
    own = {"first_epoch": 1, "framework": framework, "platform": platform, "threads": 2}
    marks = {n: sha256(f"{n} {settings.seed}") for n in ("stream", "initial_weights")}
    return RunRecord(
        config=settings,
        environments=(own | (environment or {}),),
        fingerprints={"data": sha256("data")} | marks | (fingerprints or {}),
        status=status,
        failure=failure,
        epochs=epochs,
        path=Path(name),
    )


@pytest.fixture(scope="session")
def make_record() -> Callable[..., RunRecord]:
    return record


@pytest.fixture(scope="session")
def make_result() -> Callable[..., Result]:
    return lambda *args, **kwargs: from_record(record(*args, **kwargs))


@pytest.fixture(scope="session")
def article_results() -> Path:
    """Return the folder of the article's published files, which this repository does not hold."""
    folder = Path(__file__).parents[3] / "shared" / "article" / "results"
    if not folder.is_dir():
        pytest.skip(f"the article's result files are missing: {folder}")
    return folder
