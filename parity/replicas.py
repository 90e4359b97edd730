"""Several runs of one configuration, seed by seed, in one program: each has a record of its own."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import NoReturn, Protocol

import numpy as np

from parity.data.dataset import Dataset
from parity.data.draws import Draws, test_draws, train_draws
from parity.data.pipeline import OwnPipeline
from parity.errors import RunFailed
from parity.loop import end_epoch, fail, finish
from parity.passes import Labelled, StepFailed, Tested, Trained, collect, tested, train_by_step
from parity.progress import Monitor, Silent
from parity.runs import Epoch, RunRecord
from parity.start import Start
from parity.trainer import Output, Trainer


class Replicas(Trainer, Protocol):
    """What an implementation offers; as a Trainer it is one of the runs alone, by the step."""

    def place_all(self, datasets: Sequence[Dataset]) -> None:
        """Lay each replica's images on the device."""
        ...

    def load_all(self, states: Sequence[Mapping[str, np.ndarray]]) -> None:
        """Take over each replica's weights, buffers and optimizer state by canonical name."""
        ...

    def states(self) -> list[dict[str, np.ndarray]]:
        """Return copies of each replica's state by canonical name."""
        ...

    def train_all(self, draws: Sequence[Draws]) -> list[Output]:
        """Do each replica's updates; a loss that is NaN or infinite stops none of them."""
        ...

    def test_all(self, draws: Draws) -> list[Output]:
        """Return each replica's loss and logits with running statistics and without dropout."""
        ...


def train(trainer: Replicas, starts: Sequence[Start], monitor: Monitor) -> list[RunRecord]:
    """Train all runs from their first epoch to their last and return the finished records.

    A run that fails does not end the others: its record says so, and its arithmetic goes on unread.

    Args:
        trainer: Of as many replicas.
        starts: The runs, which differ in their seeds alone; their records are written.
        monitor: Hears of every epoch's means.

    Raises:
        RunFailed: At the end, if a run has failed; names them.
    """
    config = starts[0].record.config
    datasets = [start.dataset for start in starts]
    states: Sequence[Mapping[str, np.ndarray]] = [start.state for start in starts]
    alive = {replica: start.record for replica, start in enumerate(starts)}
    failures: list[str] = []
    predictions: list[np.ndarray] = []
    trainer.load_all(states)
    trainer.place_all(datasets)
    for epoch in range(1, config.epochs + 1):
        begin = time.perf_counter()
        trained = _train(trainer, starts, epoch)
        middle = time.perf_counter()
        evaluated = _test(trainer, datasets[0], config.batch_size, len(starts))
        # Each run's share, so that times add up as those of runs alone do.
        seconds = (middle - begin) / len(starts), (time.perf_counter() - middle) / len(starts)
        before, states = states, trainer.states()
        predictions = [each.predictions for each in evaluated]
        for replica, record in list(alive.items()):
            try:
                finite = np.isfinite(trained[replica].losses)
                if not finite.all():
                    step = 1 + int(finite.argmin())
                    _fail(trainer, starts[replica], record, epoch, step, before[replica])
                alive[replica] = end_epoch(
                    record,
                    datasets[replica],
                    epoch,
                    trained[replica],
                    evaluated[replica],
                    seconds,
                    states[replica],
                )
            except RunFailed as error:
                failures.append(str(error))
                del alive[replica]
        if not alive:
            break
        monitor.steps(
            epoch=epoch,
            loss=float(np.mean([trained[replica].losses[-1] for replica in alive])),
            accuracy=float(np.mean([r.epochs[-1].train_accuracy for r in alive.values()])),
            num_images=sum(len(datasets[replica].train_labels) for replica in alive),
            num_steps=len(trained[0].losses),
        )
        monitor.epoch(_mean([record.epochs[-1] for record in alive.values()]))
    finished = [finish(r, states[replica], predictions[replica]) for replica, r in alive.items()]
    if failures:
        raise RunFailed(f"{len(failures)} of {len(starts)} runs:\n  " + "\n  ".join(failures))
    return finished


def _train(trainer: Replicas, starts: Sequence[Start], epoch: int) -> list[Trained]:
    settings = [start.record.config for start in starts]
    stretches = [
        train_draws(start.dataset, seed=c.seed, epoch=epoch, batch_size=c.batch_size)
        for start, c in zip(starts, settings, strict=True)
    ]
    steps: list[list[Labelled]] = [[] for _ in starts]
    for draws in zip(*stretches, strict=True):
        for replica, output in enumerate(trainer.train_all(draws)):
            labels = starts[replica].dataset.train_labels[draws[replica].chosen]
            steps[replica].append((output, labels))
    return [collect((step for step in own), epoch, Silent()) for own in steps]


def _test(trainer: Replicas, dataset: Dataset, batch_size: int, num_replicas: int) -> list[Tested]:
    outputs = [trainer.test_all(draws) for draws in test_draws(dataset, batch_size=batch_size)]
    return [tested(stretch[replica] for stretch in outputs) for replica in range(num_replicas)]


def _fail(
    trainer: Replicas,
    start: Start,
    record: RunRecord,
    epoch: int,
    step: int,
    before: Mapping[str, np.ndarray],
) -> NoReturn:
    """Mark a run as failed. Its epoch is done again, by the step, to name the tensor.

    Raises:
        RunFailed: Always.
    """
    trainer.load(before)
    pipeline = OwnPipeline(record.config.seed)
    steps = train_by_step(trainer, start.dataset, record.config, epoch, pipeline)
    tensor = "loss"
    try:
        collect(steps, epoch, Silent())
    except StepFailed as error:
        step, tensor = error.step, error.tensor
    fail(record, epoch, step, tensor, updated=(epoch, step) > (1, 1))


def _mean(figures: Sequence[Epoch]) -> Epoch:
    names = [f.name for f in fields(Epoch) if f.name.endswith(("_loss", "_accuracy"))]
    means = {name: float(np.mean([getattr(e, name) for e in figures])) for name in names}
    return replace(figures[0], **means)
