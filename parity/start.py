"""What a run begins with: its images, its first state and its record, fresh or resumed."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from parity import weights
from parity.architecture import BUFFERS, PARAMETERS
from parity.command import writing
from parity.config import DataSource, TrainConfig
from parity.data.dataset import Dataset, fingerprint
from parity.data.load import load
from parity.data.pipeline import Pipeline
from parity.errors import UserError
from parity.exact.rules import flush_subnormals
from parity.mixed_precision import initial_scale
from parity.optimizers import initial_state
from parity.runs import RunRecord, write_file


class Start(NamedTuple):
    """Everything that the training loop needs besides a Trainer."""

    dataset: Dataset
    record: RunRecord
    state: weights.Weights
    """Weights, buffers and optimizer state by canonical name."""
    note: str | None = None
    """What the user should know of them."""


def prepare(
    config: TrainConfig,
    earlier: RunRecord | None,
    environment: Mapping[str, Any],
    default_source: DataSource,
    pipeline: Pipeline,
    dataset: Dataset | None = None,
) -> Start:
    """Load what the configuration names and, if a run is resumed, check that it is the run's own.

    Args:
        config: With `out` set.
        earlier: The record of the run to go on with, or None.
        environment: What this process runs on, by `platforms.fingerprint` and the trainer.
        default_source: Reader of CIFAR-10 where the configuration names none.
        pipeline: Makes initial weights and streams.
        dataset: What the configuration names, if it is loaded already.

    Raises:
        UserError: If something is missing, does not fit, or is not what the run was begun with.
    """
    assert config.out is not None
    dataset = dataset or load(config, default_source)
    first = (
        weights.load_simple_cnn(config.init_weights)
        if config.init_weights
        else pipeline.initial_weights()
    )
    record = RunRecord(
        config=config,
        environments=({"first_epoch": 1, **environment},),
        fingerprints={
            "data": fingerprint(dataset),
            "stream": pipeline.fingerprint(
                dataset, batch_size=config.batch_size, workers=config.workers
            ),
            "initial_weights": weights.digest(first),
        },
        path=config.out,
    )
    cast = round_weights(first, config)
    if config.exact_operations:
        cast = {name: flush_subnormals(array) for name, array in cast.items()}
    state = cast | initial_state(config.optimizer, cast)
    if config.amp == "float16":
        state |= initial_scale()
    if earlier is not None:
        return _resume(dataset, record, earlier, state)
    rounded = [name for name in first if (cast[name] != first[name]).any()]
    of_all = f"{len(rounded)} of {len(first)} tensors of {config.init_weights}"
    note = f"{of_all} are float64, and rounded to {config.dtype}" if rounded else None
    return Start(dataset, record, state, note)


def round_weights(first: weights.Weights, config: TrainConfig) -> weights.Weights:
    """Return weights and buffers in the type that the run computes in.

    Raises:
        UserError: If a value of float64 is beyond float32; names the tensor.
    """
    cast = {}
    for name, array in first.items():
        with np.errstate(over="ignore"):
            cast[name] = array if array.dtype == np.int64 else array.astype(config.dtype)
        if not np.isfinite(cast[name]).all():
            raise UserError(
                f"{name} in {config.init_weights} holds {np.abs(array).max():.3g}, which "
                f"{config.dtype} has not. Use --arithmetic float64, or weights within its range."
            )
    return cast


def _resume(
    dataset: Dataset, record: RunRecord, earlier: RunRecord, state: weights.Weights
) -> Start:
    """Return the start of a run that goes on after its last finished epoch."""
    for name, digest in earlier.fingerprints.items():
        if record.fingerprints[name] != digest:
            raise UserError(
                f"The run in {earlier.path} had another {name.replace('_', ' ')} fingerprint, "
                f"{digest[:12]}, than this one, {record.fingerprints[name][:12]}. "
                "Resume it with the data, weights and version that it was begun with."
            )
    done = len(earlier.epochs)
    # An environment that finished no epoch contributed nothing.
    environments = tuple(e for e in earlier.environments if e["first_epoch"] <= done)
    (environment,) = record.environments
    record = replace(
        record,
        environments=(*environments, environment | {"first_epoch": done + 1}),
        epochs=earlier.epochs,
        checkpoint=earlier.checkpoint,
        files=earlier.files,
    )
    if earlier.checkpoint is not None:
        state = read_checkpoint(earlier)
        if earlier.path.resolve() != record.path.resolve():
            with writing(record.path):
                content = earlier.content(earlier.checkpoint)
                record = write_file(record, earlier.checkpoint, content)
    return Start(dataset, record, state)


def read_checkpoint(record: RunRecord) -> weights.Weights:
    """Return the canonical state after the last epoch of an unfinished run.

    Raises:
        UserError: If the file is missing or not, to the bit, what the run wrote.
    """
    assert record.checkpoint is not None
    record.content(record.checkpoint)  # covers the optimizer's slots, which no other digest does
    return weights.load(record.path / record.checkpoint)[0]


def model_tensors(state: Mapping[str, np.ndarray]) -> weights.Weights:
    """Return weights and buffers alone, without the optimizer's state."""
    return {name: state[name] for name in PARAMETERS | BUFFERS if name in state}
