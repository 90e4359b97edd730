"""The one epoch loop: passes of a trainer, figures into a record, a checkpoint an epoch."""

import contextlib
import io
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NoReturn

import numpy as np

from parity import runs, weights
from parity.data.dataset import Dataset
from parity.data.pipeline import Pipeline
from parity.errors import RunFailed
from parity.passes import StepFailed, Tested, Trained, on_device, test_pass, train_pass
from parity.progress import Monitor
from parity.runs import Epoch, RunRecord
from parity.start import model_tensors
from parity.trainer import Trainer


def train(
    trainer: Trainer, dataset: Dataset, record: RunRecord, monitor: Monitor, pipeline: Pipeline
) -> RunRecord:
    """Train the epochs that the record lacks and return the finished record.

    After each epoch the checkpoint is written, then the record that names it, then the old
    checkpoint goes: wherever the process dies, the folder holds a run that can go on.

    Args:
        trainer: Holds the state after the record's last epoch.
        dataset: The run's images.
        record: Status "running", already written.
        monitor: Hears of every step.
        pipeline: Makes the training batches.

    Raises:
        RunFailed: If a tensor becomes NaN or infinite, or the record cannot be written.
    """
    predictions = None
    state = trainer.state()
    if on_device(trainer, pipeline):
        trainer.place(dataset)
    for epoch in range(len(record.epochs) + 1, record.config.epochs + 1):
        begin = time.perf_counter()
        try:
            trained = train_pass(trainer, dataset, record.config, epoch, monitor, pipeline, state)
        except StepFailed as error:
            updated = (epoch, error.step) > (1, 1)
            fail(record, epoch, error.step, error.tensor, updated=updated)
        middle = time.perf_counter()
        tested = test_pass(trainer, dataset, record.config, pipeline)
        seconds = middle - begin, time.perf_counter() - middle
        state, predictions = trainer.state(), tested.predictions
        record = end_epoch(record, dataset, epoch, trained, tested, seconds, state)
        monitor.epoch(record.epochs[-1])
    if predictions is None:  # the process before died between the last epoch and the end
        predictions = test_pass(trainer, dataset, record.config, pipeline).predictions
    return finish(record, state, predictions)


def end_epoch(
    record: RunRecord,
    dataset: Dataset,
    epoch: int,
    trained: Trained,
    tested: Tested,
    seconds: tuple[float, float],
    state: Mapping[str, np.ndarray],
) -> RunRecord:
    """Keep what an epoch yielded and return the record that says so.

    Args:
        record: Of the epochs before.
        dataset: The run's images.
        epoch: Its number, from 1.
        trained: Of its training.
        tested: Of its evaluation.
        seconds: Of training and of evaluation.
        state: After it, by canonical name.

    Raises:
        RunFailed: If a tensor is NaN or infinite, or the record cannot be written.
    """
    for name, array in {**state, "test loss": np.array(tested.loss)}.items():
        if not np.isfinite(array).all():
            fail(record, epoch, len(trained.losses), name)
    figures = Epoch(
        epoch=epoch,
        train_loss=float(np.mean(trained.losses, dtype=np.float64)),
        train_accuracy=100 * trained.num_correct / len(dataset.train_labels),
        test_loss=tested.loss,
        test_accuracy=100 * float(np.mean(tested.predictions == dataset.test_labels)),
        weights_sha256=weights.digest(model_tensors(state)),
        train_seconds=seconds[0],
        test_seconds=seconds[1],
        step_losses=runs.encode_losses(trained.losses),
    )
    with _keeping(record):
        return _commit(record, figures, state)


def _commit(record: RunRecord, figures: Epoch, state: Mapping[str, np.ndarray]) -> RunRecord:
    old, name = record.checkpoint, f"checkpoint-{figures.epoch}.safetensors"
    content = weights.to_bytes(state, {"epoch": str(figures.epoch)})
    record = runs.write_file(replace(record, files={}), name, content)
    record = replace(record, epochs=(*record.epochs, figures), checkpoint=name)
    runs.write_record(record)
    if old is not None:
        (record.path / old).unlink(missing_ok=True)
    return record


def finish(
    record: RunRecord, state: Mapping[str, np.ndarray], predictions: np.ndarray
) -> RunRecord:
    """Keep final weights and predictions and return the finished record.

    Raises:
        RunFailed: If they cannot be written.
    """
    with _keeping(record):
        return _finish(record, model_tensors(state), predictions)


def _finish(
    record: RunRecord, final: Mapping[str, np.ndarray], predictions: np.ndarray
) -> RunRecord:
    array = io.BytesIO()
    np.save(array, predictions)
    record = runs.write_file(replace(record, files={}), runs.PREDICTIONS, array.getvalue())
    record = runs.write_file(record, runs.WEIGHTS, weights.to_bytes(final))
    checkpoint = record.checkpoint
    record = replace(record, status="finished", checkpoint=None)
    runs.write_record(record)
    if checkpoint is not None:
        (record.path / checkpoint).unlink(missing_ok=True)
    return record


def fail(
    record: RunRecord, epoch: int, step: int, tensor: str, *, updated: bool = True
) -> NoReturn:
    """Mark the run as failed and stop it; `updated` says whether it changed any weight before.

    Raises:
        RunFailed: Always.
    """
    place, remedy = f"epoch {epoch}, step {step}", "a smaller --lr"
    if not updated:
        place, remedy = f"{place}, before any update", "other initial weights"
    if record.config.dtype == "float32":
        remedy += ", or --arithmetic float64"
    message = f"{tensor} is NaN or infinite in {place}. Try {remedy}"
    if record.epochs:
        message += f"; {record.path} keeps the {len(record.epochs)} epochs before"
    message += "."
    failure = {"message": message, "epoch": epoch, "step": step, "tensor": tensor}
    with _keeping(record):
        runs.write_record(replace(record, status="failed", failure=failure))
    raise RunFailed(message)


@contextlib.contextmanager
def _keeping(record: RunRecord) -> Iterator[None]:
    """Turn a full disk into a message that says what is kept and how to go on."""
    try:
        yield
    except OSError as error:
        raise RunFailed(
            f"{record.path} cannot be written ({error.strerror or error}). It still holds "
            f"{len(record.epochs)} finished epochs; make room, then add --resume {record.path}."
        ) from error
