"""One pass over the images: by the step from the host, or by the stretch on the device."""

import contextlib
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from parity.config import TrainConfig
from parity.data.dataset import Dataset
from parity.data.draws import test_draws, train_draws
from parity.data.pipeline import OwnPipeline, Pipeline, prefetch, test_batches
from parity.progress import Monitor
from parity.trainer import NonFinite, Output, Trainer

Labelled = tuple[Output, np.ndarray]
"""What steps yield, and the classes of their images; by the stretch both have an axis more."""


class StepFailed(Exception):
    """A tensor of the epoch's step number `step` holds NaN or infinity."""

    def __init__(self, step: int, tensor: str) -> None:
        super().__init__(step, tensor)
        self.step, self.tensor = step, tensor


class Trained(NamedTuple):
    """What an epoch yields."""

    losses: np.ndarray
    """Of every step, in the run's own precision. Shape (steps,)."""
    num_correct: int
    """Training images classified correctly."""


class Tested(NamedTuple):
    """What an evaluation yields."""

    loss: float
    """Mean of the batch losses, in nats."""
    predictions: np.ndarray
    """Each image's class. Shape (m,), uint8."""


def on_device(trainer: Trainer, pipeline: Pipeline) -> bool:
    """Return whether the device makes the batches. It can follow our own streams alone."""
    return trainer.holds_images and isinstance(pipeline, OwnPipeline)


def train_pass(
    trainer: Trainer,
    dataset: Dataset,
    config: TrainConfig,
    epoch: int,
    monitor: Monitor,
    pipeline: Pipeline,
    before: Mapping[str, np.ndarray],
) -> Trained:
    """Train an epoch.

    Args:
        trainer: Holds the state before it.
        dataset: The run's images.
        config: The run.
        epoch: Its number, from 1.
        monitor: Hears of every step.
        pipeline: Makes the batches.
        before: The state before it, by canonical name.

    Raises:
        StepFailed: If a loss is NaN or infinite.
    """
    if on_device(trainer, pipeline):
        stretches = _train_on_device(trainer, dataset, config, epoch)
        trained = collect(stretches, epoch, monitor)
        if np.isfinite(trained.losses).all():
            return trained
        # Nobody looked at a loss on the way. A second time, by the step, says where it began.
        trainer.load(before)
    return collect(train_by_step(trainer, dataset, config, epoch, pipeline), epoch, monitor)


def test_pass(
    trainer: Trainer, dataset: Dataset, config: TrainConfig, pipeline: Pipeline
) -> Tested:
    """Evaluate the test images."""
    test = _test_on_device if on_device(trainer, pipeline) else _test_by_step
    return tested(test(trainer, dataset, config.batch_size))


def tested(outputs: Iterable[Output]) -> Tested:
    """Return what an evaluation's steps yield together."""
    losses, predictions = [], []
    for output in outputs:
        losses.append(output.loss.reshape(-1))
        predictions.append(output.logits.argmax(-1).astype(np.uint8).reshape(-1))
    return Tested(
        float(np.mean(np.concatenate(losses), dtype=np.float64)), np.concatenate(predictions)
    )


def collect(outputs: Generator[Labelled], epoch: int, monitor: Monitor) -> Trained:
    """Return what an epoch's steps yield together.

    Raises:
        StepFailed: If a step is not finite.
    """
    losses: list[np.ndarray] = []
    num_correct = num_seen = 0
    with contextlib.closing(outputs):
        try:
            for output, labels in outputs:
                losses.append(output.loss.reshape(-1))
                # NumPy's argmax takes the first of equal logits, whatever the framework would do.
                num_correct += int((output.logits.argmax(-1) == labels).sum())
                num_seen += labels.size
                monitor.steps(
                    epoch=epoch,
                    loss=float(losses[-1][-1]),
                    accuracy=100 * num_correct / num_seen,
                    num_images=labels.size,
                    num_steps=len(losses[-1]),
                )
        except NonFinite as error:
            raise StepFailed(sum(map(len, losses)) + 1, error.tensor) from None
    return Trained(np.concatenate(losses), num_correct)


def train_by_step(
    trainer: Trainer, dataset: Dataset, config: TrainConfig, epoch: int, pipeline: Pipeline
) -> Generator[Labelled]:
    """Yield an epoch's steps from batches of the host."""
    batches = prefetch(
        pipeline.train_batches(
            dataset, epoch=epoch, batch_size=config.batch_size, workers=config.workers
        )
    )
    with contextlib.closing(batches):
        for batch in batches:
            yield trainer.train_step(batch), batch.labels


def _train_on_device(
    trainer: Trainer, dataset: Dataset, config: TrainConfig, epoch: int
) -> Generator[Labelled]:
    for draws in train_draws(dataset, seed=config.seed, epoch=epoch, batch_size=config.batch_size):
        yield trainer.train_steps(draws), dataset.train_labels[draws.chosen]


def _test_by_step(trainer: Trainer, dataset: Dataset, batch_size: int) -> Iterator[Output]:
    batches = prefetch(test_batches(dataset, batch_size=batch_size))
    with contextlib.closing(batches):
        for batch in batches:
            yield trainer.test_step(batch)


def _test_on_device(trainer: Trainer, dataset: Dataset, batch_size: int) -> Iterator[Output]:
    for draws in test_draws(dataset, batch_size=batch_size):
        yield trainer.test_steps(draws)
