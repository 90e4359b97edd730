"""Reader of the article's result files: three kinds of JSON, by file-name prefix, in one form.

train_*          the baseline
deterministic_*  configuration tests
optimizer_*      optimizer sensitivity; no `config`, its settings stand at top level
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from parity.errors import UserError

FILE_KINDS = ("train", "deterministic", "optimizer")

DEVICES = ("RTX 3060", "RTX 5090", "A100", "L4", "T4", "TPU")
"""The article's names of its six devices; the files hold longer ones, like "Tesla T4"."""

CURVES = ("train_loss", "train_acc", "test_loss", "test_acc")

_ENVIRONMENT = ("gpu_name", "gpu_capability", "tpu_name", "num_cores")


@dataclass(frozen=True, kw_only=True, eq=False)
class ArticleFile:
    """One result file of the article. Accuracies in percent, losses in nats, one value an epoch."""

    path: Path
    file_kind: str
    """train, deterministic or optimizer; "other" where the file's name has another beginning."""
    device: str
    seed: int | None
    optimizer: str
    """adam, rmsprop or sgd, in this project's spelling; adam where the file names none."""
    lr: float
    """0.001, which the article states, where the file names none."""
    tf32: bool
    bf16: bool
    amp: bool
    workers: int
    """Worker processes of the data loader; 0 where the file does not say."""
    benchmark: bool | None
    """cuDNN's autotuning; None where the file does not say."""
    deterministic: bool | None
    """Deterministic algorithms; None where the file does not say."""
    environment: dict[str, Any]
    """The fields that name the device and its size, as they are."""
    train_loss: np.ndarray
    """NaN where the file holds null or NaN, as in the other three. Shape (epochs,), float64."""
    train_accuracy: np.ndarray
    test_loss: np.ndarray
    test_accuracy: np.ndarray

    @property
    def label(self) -> str:
        """The article's name of the configuration, by which it pools runs."""
        return f"seed_{self.seed}_tf32_{self.tf32}_amp_{self.amp}_w{self.workers}"

    @property
    def arithmetic(self) -> str:
        """What was switched on: tf32, bf16, amp or several joined by "+"; else float32."""
        modes = [name for name in ("tf32", "bf16", "amp") if getattr(self, name)]
        return "+".join(modes) or "float32"


def read(path: Path) -> ArticleFile:
    """Return what a result file of the article holds.

    Raises:
        UserError: If it cannot be read, is no JSON, or lacks the article's curves.
    """
    try:
        content = json.loads(path.read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(f"{path} cannot be read as JSON ({error}). Give another file.") from None
    return parse(content, path)


def parse(content: Any, path: Path) -> ArticleFile:
    """Return what a parsed result file holds.

    A setting is looked up in `config`, then at top level; then it is False, or 0 for the workers,
    which is how the article's own analysis reads them.

    Raises:
        UserError: If it lacks the article's curves, or a field has another type.
    """
    if not isinstance(content, dict) or not all(name in content for name in CURVES):
        raise UserError(
            f"{path} is no result: it has not the article's curves ({', '.join(CURVES)}). "
            "Give result files of the article, or folders of runs."
        )
    try:
        return _parse(content, path)
    except (TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"{path} has the article's curves, but not its form ({error}). "
            "Restore the file, or leave it out."
        ) from None


def _parse(content: dict[str, Any], path: Path) -> ArticleFile:
    settings = content | content.get("config", {})
    curves = [_curve(content[name], name) for name in CURVES]
    if len({len(curve) for curve in curves}) != 1 or not len(curves[0]):
        raise ValueError(f"{[len(curve) for curve in curves]} epochs in the four curves")
    prefix = path.name.partition("_")[0]
    return ArticleFile(
        path=path,
        file_kind=prefix if prefix in FILE_KINDS else "other",
        device=device_name(_typed(settings, "gpu_name", str, "unknown")),
        seed=_typed(settings, "seed", int, None),
        optimizer=_typed(settings, "optimizer", str, "adam").lower(),
        lr=float(_typed(settings, "lr", int | float, 1e-3)),
        tf32=_typed(settings, "tf32_enabled", bool, False),
        bf16=_typed(settings, "bf16_enabled", bool, False),
        amp=_typed(settings, "amp_enabled", bool, False),
        workers=_typed(settings, "num_workers", int, 0),
        benchmark=_typed(settings, "cudnn_benchmark", bool, None),
        deterministic=_typed(settings, "deterministic_algorithms", bool, None),
        environment={name: settings[name] for name in _ENVIRONMENT if name in settings},
        train_loss=curves[0],
        train_accuracy=curves[1],
        test_loss=curves[2],
        test_accuracy=curves[3],
    )


def device_name(name: str) -> str:
    """Return the article's name of a device, or the name itself where it is another device.

    >>> device_name("NVIDIA A100-SXM4-40GB"), device_name("TPU TPU"), device_name("NVIDIA L40")
    ('A100', 'TPU', 'NVIDIA L40')
    """
    return next((d for d in DEVICES if re.search(rf"\b{d}\b", name)), name)


def _typed(settings: dict[str, Any], name: str, kind: Any, default: Any) -> Any:
    value = settings.get(name)
    if value is None:
        return default
    # bool is an int to Python, but True is no number of workers.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{name} is {value!r}")
    return value


def _curve(values: Any, name: str) -> np.ndarray:
    if not isinstance(values, list):
        raise TypeError(f"{name} is no list")
    for value in values:
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise ValueError(f"{name} holds {value!r}")
    return np.array([np.nan if value is None else value for value in values], np.float64)
