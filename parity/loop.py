"""The one epoch loop: batches into a trainer, figures into a record, a checkpoint an epoch."""

import contextlib
import io
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NoReturn

import numpy as np

from parity import runs, weights
from parity.data.dataset import Dataset
from parity.data.pipeline import Pipeline, prefetch, test_batches
from parity.errors import RunFailed
from parity.progress import Monitor
from parity.runs import Epoch, RunRecord
from parity.start import model_tensors
from parity.trainer import NonFinite, Trainer


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
    for epoch in range(len(record.epochs) + 1, record.config.epochs + 1):
        begin = time.perf_counter()
        losses, num_correct = _train_epoch(trainer, dataset, record, epoch, monitor, pipeline)
        trained = time.perf_counter()
        test_loss, predictions = _test(trainer, dataset, record.config.batch_size)
        tested = time.perf_counter()
        state = trainer.state()
        for name, array in {**state, "test loss": np.array(test_loss)}.items():
            if not np.isfinite(array).all():
                _fail(record, epoch, len(losses), name)
        figures = Epoch(
            epoch=epoch,
            train_loss=float(np.mean(losses, dtype=np.float64)),
            train_accuracy=100 * num_correct / len(dataset.train_labels),
            test_loss=test_loss,
            test_accuracy=100 * float(np.mean(predictions == dataset.test_labels)),
            weights_sha256=weights.digest(model_tensors(state)),
            train_seconds=trained - begin,
            test_seconds=tested - trained,
            step_losses=runs.encode_losses(losses),
        )
        with _keeping(record):
            record = _commit(record, figures, state)
        monitor.epoch(figures)
    if predictions is None:  # the process before died between the last epoch and the end
        _, predictions = _test(trainer, dataset, record.config.batch_size)
    with _keeping(record):
        return _finish(record, model_tensors(state), predictions)


def _train_epoch(
    trainer: Trainer,
    dataset: Dataset,
    record: RunRecord,
    epoch: int,
    monitor: Monitor,
    pipeline: Pipeline,
) -> tuple[np.ndarray, int]:
    """Return the epoch's step losses and the number of training images classified correctly."""
    config = record.config
    batches = prefetch(
        pipeline.train_batches(
            dataset, epoch=epoch, batch_size=config.batch_size, workers=config.workers
        )
    )
    losses = []
    num_correct = num_seen = 0
    with contextlib.closing(batches):
        for batch in batches:
            try:
                output = trainer.train_step(batch)
            except NonFinite as error:
                _fail(record, epoch, len(losses) + 1, error.tensor)
            losses.append(output.loss)
            # NumPy's argmax takes the first of equal logits, whatever the framework would do.
            num_correct += int((output.logits.argmax(1) == batch.labels).sum())
            num_seen += len(batch.labels)
            monitor.step(
                epoch=epoch,
                loss=float(output.loss),
                accuracy=100 * num_correct / num_seen,
                num_images=len(batch.labels),
            )
    return np.stack(losses), num_correct


def _test(trainer: Trainer, dataset: Dataset, batch_size: int) -> tuple[float, np.ndarray]:
    """Return the mean of the batch losses in nats, and each image's predicted class, uint8."""
    losses, predictions = [], []
    batches = prefetch(test_batches(dataset, batch_size=batch_size))
    with contextlib.closing(batches):
        for batch in batches:
            output = trainer.test_step(batch)
            losses.append(output.loss)
            predictions.append(output.logits.argmax(1).astype(np.uint8))
    return float(np.mean(losses, dtype=np.float64)), np.concatenate(predictions)


def _commit(record: RunRecord, figures: Epoch, state: Mapping[str, np.ndarray]) -> RunRecord:
    old, name = record.checkpoint, f"checkpoint-{figures.epoch}.safetensors"
    content = weights.to_bytes(state, {"epoch": str(figures.epoch)})
    record = runs.write_file(replace(record, files={}), name, content)
    record = replace(record, epochs=(*record.epochs, figures), checkpoint=name)
    runs.write_record(record)
    if old is not None:
        (record.path / old).unlink(missing_ok=True)
    return record


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


def _fail(record: RunRecord, epoch: int, step: int, tensor: str) -> NoReturn:
    """Mark the run as failed and stop it."""
    message = (
        f"{tensor} is NaN or infinite in epoch {epoch}, step {step}. "
        f"Try a smaller --lr, or --arithmetic float64; {record.path} keeps "
        f"the {len(record.epochs)} epochs before."
    )
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
