"""A run's record: one folder, whose record.json says what ran, on what, and what came out.

    record.json              configuration, environments, fingerprints, figures of every epoch
    checkpoint-N.safetensors weights, buffers and optimizer slots after epoch N
    weights.safetensors      final weights and buffers
    predictions.npy          class predicted for each test image after the last epoch, uint8

record.json is the single source of truth and names the other files. They are written first and
record.json last, each atomically, so that a run killed at any moment leaves a consistent folder.
"""

import hashlib
import io
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from filelock import FileLock, Timeout

from parity import weights
from parity.config import TrainConfig
from parity.errors import UserError
from parity.files import write_atomically

SCHEMA = "training-parity/run/1"
RECORD = "record.json"
WEIGHTS = "weights.safetensors"
PREDICTIONS = "predictions.npy"

Status = Literal["running", "finished", "failed"]


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """What one epoch yielded. Losses in nats, accuracies in percent, as the article logs them."""

    epoch: int
    train_loss: float
    """Mean of the batch losses, not weighted by batch size."""
    train_accuracy: float
    """Over the epoch's own training batches, dropout on."""
    test_loss: float
    """Mean of the batch losses, not weighted by batch size."""
    test_accuracy: float
    weights_sha256: str
    """`weights.digest` of parameters and buffers after the epoch."""
    train_seconds: float
    test_seconds: float
    step_losses: str
    """Every step's loss, its bits in hexadecimal, most significant digit first, joined."""


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One run, as record.json holds it."""

    config: TrainConfig
    environments: tuple[dict[str, Any], ...]
    """What the run ran on: one entry a process, with the first epoch that it did."""
    fingerprints: dict[str, str]
    """SHA-256 of data, stream and initial_weights."""
    status: Status = "running"
    failure: dict[str, Any] | None = None
    """Of a failed run: message, epoch, step, tensor."""
    epochs: tuple[Epoch, ...] = ()
    checkpoint: str | None = None
    """Name of the checkpoint file after the last epoch in `epochs`."""
    files: dict[str, str] = field(default_factory=dict)
    """SHA-256 of the content of the files that the record names, by name."""
    path: Path = Path()
    """The folder; not part of the file."""

    @property
    def frameworks(self) -> str:
        """The framework, or "torch->jax" where the run changed it on the way."""
        names = [environment["framework"] for environment in self.environments]
        return "->".join(n for i, n in enumerate(names) if i == 0 or n != names[i - 1])

    @property
    def platforms(self) -> str:
        """The platform, or "cpu->cpu:avx2" where the run changed it on the way."""
        names = [environment["platform"] for environment in self.environments]
        return "->".join(n for i, n in enumerate(names) if i == 0 or n != names[i - 1])

    def step_losses(self) -> np.ndarray:
        """Return the losses of all steps so far, in nats, in the run's own precision."""
        return decode_losses("".join(e.step_losses for e in self.epochs), self.config.dtype)

    def predictions(self) -> np.ndarray | None:
        """Return the class predicted for each test image, or None before the run is finished.

        Raises:
            UserError: If the file is not the one that the run wrote.
        """
        if PREDICTIONS not in self.files:
            return None
        return np.load(io.BytesIO(self.content(PREDICTIONS)))

    def final_weights(self) -> weights.Weights | None:
        """Return the final weights by canonical name, or None before the run is finished.

        Raises:
            UserError: If the file is not the one that the run wrote.
        """
        if WEIGHTS not in self.files:
            return None
        self.content(WEIGHTS)
        return weights.load(self.path / WEIGHTS)[0]

    def content(self, name: str) -> bytes:
        """Return the content of one of the run's files.

        Raises:
            UserError: If the file is not the one that the run wrote.
        """
        try:
            content = (self.path / name).read_bytes()
        except OSError as error:
            raise UserError(
                f"{self.path / name} cannot be read ({error.strerror}), though the run's record "
                "names it. Restore the file, or do without this run."
            ) from None
        if hashlib.sha256(content).hexdigest() != self.files[name]:
            raise UserError(
                f"{self.path / name} is not the file that the run wrote: its SHA-256 differs from "
                "the record's. Restore the file, or do without this run."
            )
        return content


def encode_losses(losses: np.ndarray) -> str:
    """Return the bits of float32 or float64 values in hexadecimal, 8 or 16 digits each."""
    return losses.astype(losses.dtype.newbyteorder(">")).tobytes().hex()


def decode_losses(digits: str, dtype: str) -> np.ndarray:
    """Return the values that `encode_losses` wrote; `dtype` is float32 or float64."""
    kind = np.dtype(dtype)
    return np.frombuffer(bytes.fromhex(digits), kind.newbyteorder(">")).astype(kind)


def write_record(record: RunRecord) -> None:
    """Write record.json, atomically. From here on the run is what this record says.

    Raises:
        OSError: If the disk is full or the folder cannot be written; the old record stays.
    """
    content: dict[str, Any] = {"schema": SCHEMA} | asdict(replace(record, path=Path()))
    content["config"] = record.config.to_json()
    del content["path"]
    # allow_nan=False: NaN is no JSON, and a record that holds it would be our mistake.
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    write_atomically(record.path / RECORD, lambda file: file.write(text.encode()))


def write_file(record: RunRecord, name: str, content: bytes) -> RunRecord:
    """Write a file of the run, atomically, and return the record that names it."""
    write_atomically(record.path / name, lambda file: file.write(content))
    return replace(record, files=record.files | {name: hashlib.sha256(content).hexdigest()})


def read_record(path: Path) -> RunRecord:
    """Return the record of a run.

    Args:
        path: The run's folder, or its record.json.

    Raises:
        UserError: If there is none, or it is truncated, altered or of an unknown version.
    """
    file = path if path.name == RECORD else path / RECORD
    try:
        content = json.loads(file.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"There is no run in {file.parent}: it holds no {RECORD}. Give the folder of a run."
        ) from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(
            f"{file} is no whole record ({error}). Restore it, or leave this run out."
        ) from None
    return parse_record(content, file)


def parse_record(content: Any, file: Path) -> RunRecord:
    """Return the record that a parsed record.json holds, checked field by field.

    Raises:
        UserError: If it is not of this version's form; names the file and the field.
    """
    schema = content.get("schema") if isinstance(content, dict) else None
    if schema != SCHEMA:
        raise UserError(
            f"{file} has schema {schema!r}, but this version reads {SCHEMA!r}. "
            "Read it with the version that wrote it."
        )
    try:
        return _parse(content, file)
    except UserError as error:
        raise UserError(f"{file}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"{file} is not of the form that {SCHEMA!r} promises ({error!r}). "
            "Restore it, or leave this run out."
        ) from None


def _parse(content: dict[str, Any], file: Path) -> RunRecord:
    known = {f.name for f in fields(RunRecord)} - {"path"} | {"schema"}
    if set(content) != known:
        raise ValueError(f"fields {sorted(set(content) ^ known)} missing or unknown")
    config = TrainConfig.from_json(content["config"])
    if content["status"] not in ("running", "finished", "failed"):
        raise ValueError(f"status {content['status']!r}")
    epochs = tuple(Epoch(**values) for values in content["epochs"])
    if [e.epoch for e in epochs] != list(range(1, len(epochs) + 1)):
        raise ValueError("epochs are not 1, 2, 3, ...")
    for e in epochs:
        figures = (e.train_loss, e.train_accuracy, e.test_loss, e.test_accuracy)
        if not all(isinstance(x, int | float) and math.isfinite(x) for x in figures):
            raise ValueError(f"epoch {e.epoch} holds a figure that is no finite number")
        decode_losses(e.step_losses, config.dtype)
    for environment in content["environments"]:
        if not {"framework", "platform", "first_epoch"} <= set(environment):
            raise ValueError("an environment lacks framework, platform or first_epoch")
    if not {"data", "stream", "initial_weights"} <= set(content["fingerprints"]):
        raise ValueError("a fingerprint is missing")
    if content["checkpoint"] is not None and content["checkpoint"] not in content["files"]:
        raise ValueError("files lacks the checkpoint")
    return RunRecord(
        config=config,
        environments=tuple(content["environments"]),
        fingerprints=dict(content["fingerprints"]),
        status=content["status"],
        failure=content["failure"],
        epochs=epochs,
        checkpoint=content["checkpoint"],
        files=dict(content["files"]),
        path=file.parent,
    )


@contextmanager
def sole_writer(path: Path) -> Iterator[None]:
    """Hold a run's folder, so that two processes never write one run.

    Raises:
        UserError: If another process is at it.
    """
    lock = FileLock(path / ".lock")
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise UserError(
            f"Another process is training in {path}. Wait for it, or choose another --out."
        ) from None
    try:
        yield
    finally:
        lock.release()
