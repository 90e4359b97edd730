"""Results: what a compared run is, a record of this project or a file of the article, and reading.

Both kinds take one form, in which what one of them does not record is None.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from parity import commas, runs
from parity.article.files import ArticleFile
from parity.article.files import parse as parse_article
from parity.errors import UserError
from parity.runs import RunRecord, Status

FIELDS = ("kind", "status", "framework", "platform", "arithmetic", "optimizer", "seed")
"""What every result has; `configuration` and `environment` hold the rest."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Curves:
    """Figures of the epochs 1, 2, ..., all finite. Each of shape (epochs,), float64."""

    train_loss: np.ndarray
    """Nats."""
    train_accuracy: np.ndarray
    """Percent."""
    test_loss: np.ndarray
    """Nats."""
    test_accuracy: np.ndarray
    """Percent."""

    def __len__(self) -> int:
        return len(self.test_accuracy)

    def until(self, num_epochs: int) -> "Curves":
        """Return the first epochs alone."""
        return Curves(**{name: curve[:num_epochs] for name, curve in vars(self).items()})

    def bits(self) -> bytes:
        """Return all figures as bytes: equal if and only if every figure is, to the bit."""
        return b"".join(curve.tobytes() for curve in vars(self).values())


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """One compared run."""

    name: str
    """As short as distinct names allow."""
    path: Path
    """Folder of a run, or file of the article."""
    kind: Literal["run", "article"]
    status: Status
    failure: str | None
    """Why a failed run failed."""
    framework: str
    platform: str
    """For the article: its name of the device."""
    arithmetic: str
    optimizer: str
    seed: int | None
    configuration: dict[str, Any]
    """The other settings. The article's: file_kind, label, lr, tf32, bf16, amp, workers, ..."""
    environment: dict[str, Any]
    """What it ran on, flat: nested names are joined by dots."""
    curves: Curves
    step_losses: np.ndarray | None
    """Nats, in the run's own precision. Shape (steps,), float32 or float64."""
    digests: tuple[str, ...] | None
    """SHA-256 of the weights after each epoch."""
    fingerprints: dict[str, str] | None
    """SHA-256 of data, stream and initial_weights."""
    load_predictions: Callable[[], np.ndarray | None]
    """Reads the predicted classes, shape (test images,), uint8; None where there are none."""

    @property
    def finished(self) -> bool:
        """Whether the run came to its end, so that its final accuracy is one."""
        return self.status == "finished"

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Every field that results can be grouped by or differ in, by name.

        Where a setting and the environment share a name, what was really in force counts.
        """
        return (
            {name: getattr(self, name) for name in FIELDS} | self.configuration | self.environment
        )


class Reading(NamedTuple):
    """What came of reading paths."""

    results: list[Result]
    """In an order that does not depend on the order of the paths."""
    skipped: list[str]
    """A message for each file that is no result."""


def read(paths: Sequence[Path]) -> Reading:
    """Return the results in run folders, folders of them, and files of the article.

    Folders are searched recursively, hidden ones left out. A result found twice counts once. What
    this project writes beside runs (schema "training-parity/...") is passed over in silence.

    Raises:
        UserError: If a path does not exist, or no result is left.
    """
    found: dict[Path, Result] = {}
    skipped: dict[Path, str] = {}
    for path in paths:
        if not path.exists():
            raise UserError(f"There is no {path}. Give run folders or result files.")
        candidates = list(_candidates(path))
        if path.is_dir() and not candidates:
            skipped[path.resolve()] = f"{path} holds no result."
        for candidate in candidates:
            key = candidate.resolve()
            if key in found or key in skipped:
                continue
            try:
                result = _read_one(candidate, named=candidate == path)
            except UserError as error:
                skipped[key] = str(error)
            else:
                if result is not None:
                    found[key] = result
    if not found:
        reasons = "".join(f"\n  {message}" for message in skipped.values())
        raise UserError(f"There is no result to compare. Give folders of runs.{reasons}")
    ordered = [found[key] for key in sorted(found, key=_natural)]
    names = _distinct_names(ordered)
    results = [replace(r, name=name) for r, name in zip(ordered, names, strict=True)]
    return Reading(results, [skipped[key] for key in sorted(skipped, key=_natural)])


def _candidates(path: Path) -> Iterator[Path]:
    """Yield run folders and JSON files at or below a path."""
    if not path.is_dir():
        yield path.parent if path.name == runs.RECORD else path
        return
    for folder, subfolders, files in os.walk(path):
        if runs.RECORD in files:
            subfolders.clear()
            yield Path(folder)
            continue
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for name in sorted(files):
            if name.endswith(".json") and not name.startswith("."):
                yield Path(folder, name)


def _read_one(path: Path, *, named: bool) -> Result | None:
    """Return the result at a path, or None for another file of this project's own.

    Raises:
        UserError: If it is no result, or is one that the user named and cannot be read.
    """
    if path.is_dir():
        return from_record(runs.read_record(path))
    try:
        content = json.loads(path.read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(f"{path} is no result: it cannot be read as JSON ({error}).") from None
    schema = content.get("schema") if isinstance(content, dict) else None
    if isinstance(schema, str) and schema.startswith("training-parity/") and not named:
        return None
    return from_article(parse_article(content, path))


def _natural(path: Path) -> list[tuple[int, str]]:
    """Sort seed-2 before seed-10."""
    parts = re.split(r"(\d+)", path.as_posix())
    return [(int(part) if part.isdecimal() else -1, part) for part in parts]


def _distinct_names(results: Sequence[Result]) -> list[str]:
    """Return each name with as many folders before it as tell it from all others."""
    parts = [(*result.path.resolve().parts[:-1], result.name) for result in results]
    depths = [1] * len(parts)
    while True:
        names = ["/".join(p[-depth:]) for p, depth in zip(parts, depths, strict=True)]
        counts = Counter(names)
        unclear = [i for i, n in enumerate(names) if counts[n] > 1 and depths[i] < len(parts[i])]
        if not unclear:
            return names
        for i in unclear:
            depths[i] += 1


def from_record(record: RunRecord) -> Result:
    """Return a run of this project in the common form."""
    configuration = record.config.to_json()
    del configuration["device"]  # the platform is what it came to mean
    arithmetic, optimizer, seed = (
        configuration.pop(name) for name in ("arithmetic", "optimizer", "seed")
    )
    configuration["exact_only"] = commas.join(record.config.exact_only)
    failure = record.failure
    return Result(
        name=record.path.resolve().name,
        path=record.path,
        kind="run",
        status=record.status,
        failure=None if failure is None else str(failure.get("message", failure)),
        framework=record.frameworks,
        platform=record.platforms,
        arithmetic=arithmetic,
        optimizer=optimizer,
        seed=seed,
        configuration=configuration,
        environment=_merge(record.environments),
        curves=Curves(
            train_loss=np.array([e.train_loss for e in record.epochs], np.float64),
            train_accuracy=np.array([e.train_accuracy for e in record.epochs], np.float64),
            test_loss=np.array([e.test_loss for e in record.epochs], np.float64),
            test_accuracy=np.array([e.test_accuracy for e in record.epochs], np.float64),
        ),
        step_losses=record.step_losses(),
        digests=tuple(e.weights_sha256 for e in record.epochs),
        fingerprints=record.fingerprints,
        # Without the epochs, whose step losses would stay in memory a second time.
        load_predictions=replace(record, epochs=()).predictions,
    )


def from_article(file: ArticleFile) -> Result:
    """Return a file of the article in the common form.

    A figure that is no finite number ends the curves before its epoch, and the run counts as
    failed: it has no final accuracy.
    """
    curves = Curves(
        train_loss=file.train_loss,
        train_accuracy=file.train_accuracy,
        test_loss=file.test_loss,
        test_accuracy=file.test_accuracy,
    )
    finite = np.isfinite(np.stack(list(vars(curves).values()))).all(axis=0)
    num_finite = len(curves) if finite.all() else int(finite.argmin())
    failed = num_finite < len(curves)
    return Result(
        name=file.path.stem,
        path=file.path,
        kind="article",
        status="failed" if failed else "finished",
        failure=f"epoch {num_finite + 1} holds a figure that is no number" if failed else None,
        framework="torch",
        platform=file.device,
        arithmetic=file.arithmetic,
        optimizer=file.optimizer,
        seed=file.seed,
        configuration={
            name: getattr(file, name)
            for name in (
                *("file_kind", "label", "lr", "tf32", "bf16", "amp"),
                *("workers", "benchmark", "deterministic"),
            )
        },
        environment=_flatten(file.environment),
        curves=curves.until(num_finite),
        step_losses=None,
        digests=None,
        fingerprints=None,
        load_predictions=lambda: None,
    )


def _merge(environments: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the environments of a run's processes as one; what changed is joined by "->"."""
    flat = [_flatten(environment) for environment in environments]
    merged: dict[str, Any] = {}
    for name in dict.fromkeys(name for environment in flat for name in environment):
        if name in ("framework", "platform", "first_epoch"):
            continue
        values = [environment.get(name) for environment in flat]
        changed = [v for i, v in enumerate(values) if i == 0 or v != values[i - 1]]
        merged[name] = values[0] if len(changed) == 1 else "->".join(map(str, changed))
    return merged


def _flatten(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
