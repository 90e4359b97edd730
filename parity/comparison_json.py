"""A comparison as one JSON document: everything at full precision, never NaN.

Runs are named by their position in `results`, from 0; groups by theirs in `groups`. What is
undefined or not recorded is null.
"""

import dataclasses
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from parity.comparison import Comparison
from parity.curves import epoch_reaching, population_std
from parity.results import Result

SCHEMA = "training-parity/comparison/1"


def as_json(comparison: Comparison) -> str:
    """Return the document's text, without a newline at its end."""
    content = {
        "schema": SCHEMA,
        "threshold_percent": comparison.threshold,
        **_plain(dataclasses.replace(comparison, results=())),
        "results": [_result(result, comparison.threshold) for result in comparison.results],
    }
    del content["threshold"]
    return "{\n" + ",\n".join(_lines(content)) + "\n}"


def _lines(content: dict[str, Any]) -> Iterator[str]:
    """Yield each entry as a line, one with a list as a line an item.

    Thus a line is a run, and Python's encoder in C, which is the fast one but cannot indent, does.
    """
    for name, value in content.items():
        if isinstance(value, list) and value:
            items = ",\n ".join(json.dumps(item, allow_nan=False) for item in value)
            yield f"{json.dumps(name)}: [\n {items}\n]"
        else:
            yield f"{json.dumps(name)}: {json.dumps(value, allow_nan=False)}"


def _result(result: Result, threshold: float) -> dict[str, Any]:
    accuracy = result.curves.test_accuracy
    some = len(accuracy) > 0
    return {
        "name": result.name,
        "path": str(result.path),
        "kind": result.kind,
        "status": result.status,
        "failure": result.failure,
        "framework": result.framework,
        "platform": result.platform,
        "arithmetic": result.arithmetic,
        "optimizer": result.optimizer,
        "seed": result.seed,
        "configuration": _plain(result.configuration),
        "environment": _plain(result.environment),
        "fingerprints": result.fingerprints,
        "weights_sha256": _plain(result.digests),
        "curves": _plain(result.curves),
        "final_accuracy": float(accuracy[-1]) if some else None,
        "threshold_epoch": epoch_reaching(accuracy, threshold),
        "stability": population_std(accuracy) if some else None,
    }


def _properties(value: Any) -> list[str]:
    """Return the names of what is worked out from the fields: bitwise, close, margin."""
    return [name for name, entry in vars(type(value)).items() if isinstance(entry, property)]


def _plain(value: Any) -> Any:
    """Return a value as what JSON knows: dataclasses and named tuples become objects."""
    if isinstance(value, str | int | None):
        return value
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: _plain(getattr(value, name)) for name in (*names, *_properties(value))}
    if isinstance(value, tuple) and (names := getattr(value, "_fields", None)):
        return {name: _plain(getattr(value, name)) for name in (*names, *_properties(value))}
    if isinstance(value, dict):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.ndarray):
        finite = value.dtype.kind != "f" or np.isfinite(value).all()
        return value.tolist() if finite else _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
