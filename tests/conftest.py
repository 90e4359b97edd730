"""Real images for tests, and what both implementations are measured against: NumPy."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from parity.architecture import BUFFERS, NUM_FEATURES, PARAMETERS
from parity.data.dataset import Dataset, Split, canonical
from parity.data.pipeline import Batch

SHARED = Path(__file__).resolve().parents[2] / "shared"


def pytest_addoption(parser) -> None:
    """Let the tests of the exact operations run on another device than the CPU."""
    parser.addoption("--device", default="cpu", help="where tests of operations compute: cpu, gpu")


@pytest.fixture(scope="session")
def cifar10_folder(tmp_path_factory) -> Path:
    """Return a folder with cifar-10-batches-bin, unpacked from ../shared, or skip."""
    tool = SHARED / "tools" / "unpack_cifar10.py"
    if not tool.exists():
        pytest.skip(f"needs the CIFAR-10 copy of {SHARED}")
    folder = tmp_path_factory.mktemp("cifar10")
    subprocess.run([sys.executable, str(tool), str(folder)], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def photographs() -> Dataset:
    """Return 32x32 pieces of the two photographs in scikit-learn's wheel: 420 and 100 of them."""
    from sklearn.datasets import load_sample_images

    pieces = [
        photograph[row : row + 32, column : column + 32]
        for photograph in load_sample_images().images
        for row in range(0, 416, 32)
        for column in range(0, 640, 32)
    ]
    images = np.stack(pieces)
    labels = (np.arange(len(images)) % 10).astype(np.uint8)
    return canonical(
        name="photographs",
        source="scikit-learn",
        train=Split(images[:420], labels[:420]),
        test=Split(images[420:], labels[420:]),
        mean=(0.5, 0.5, 0.5),
        std=(0.25, 0.25, 0.25),
    )


@pytest.fixture(scope="session")
def random_weights() -> Callable[..., dict[str, np.ndarray]]:
    """Return a function that makes SimpleCNN's tensors, of which no two values are likely alike."""

    def make(seed: int, dtype: str) -> dict[str, np.ndarray]:
        random = np.random.default_rng(seed)
        tensors = {}
        for name, tensor in (PARAMETERS | BUFFERS).items():
            scale = 1 / np.sqrt(tensor.fan_in or 1)
            values = random.normal(0, scale, tensor.shape)
            if name.endswith("running_var") or (name.startswith("bn") and name.endswith("weight")):
                values = 0.5 + np.abs(values)
            tensors[name] = values.astype(dtype)
            if name.endswith("num_batches_tracked"):
                tensors[name] = np.array(random.integers(1, 1000), np.int64)
        return tensors

    return make


@pytest.fixture(scope="session")
def random_batch() -> Callable[..., Batch]:
    """Return a function that makes a batch of noise."""

    def make(seed: int, size: int = 4) -> Batch:
        random = np.random.default_rng(seed)
        return Batch(
            images=random.normal(0, 1, (size, 32, 32, 3)).astype(np.float32),
            labels=random.integers(0, 10, size).astype(np.int32),
            keep=random.random((size, NUM_FEATURES)) < 0.5,
        )

    return make


class Reference(NamedTuple):
    """What the network yields by its definition, in NumPy and float64."""

    logits: np.ndarray
    loss: float
    statistics: dict[str, np.ndarray]
    """BatchNorm's buffers after the batch."""
    biased: dict[str, np.ndarray]
    """The running variances that a biased estimate would give."""


@pytest.fixture(scope="session")
def reference() -> Callable[..., Reference]:
    """Return a function that runs a batch through the network: a page of NumPy, no framework."""
    return _forward


def _forward(weights: dict[str, np.ndarray], batch: Batch, *, training: bool) -> Reference:
    w = {name: array.astype(np.float64) for name, array in weights.items()}
    x = batch.images.astype(np.float64).transpose(0, 3, 1, 2)
    statistics, biased = {}, {}
    for i in (1, 2, 3):
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = sliding_window_view(padded, (3, 3), (2, 3))
        x = np.einsum("nchwij,ocij->nohw", windows, w[f"conv{i}.weight"], optimize=True)
        x += w[f"conv{i}.bias"][:, None, None]
        mean, var = w[f"bn{i}.running_mean"], w[f"bn{i}.running_var"]
        if training:
            count = x.size // x.shape[1]
            old_mean, old_var = mean, var
            mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3))
            statistics[f"bn{i}.running_mean"] = 0.9 * old_mean + 0.1 * mean
            statistics[f"bn{i}.running_var"] = 0.9 * old_var + 0.1 * var * count / (count - 1)
            biased[f"bn{i}.running_var"] = 0.9 * old_var + 0.1 * var
        x = (x - mean[:, None, None]) / np.sqrt(var + 1e-5)[:, None, None]
        x = x * w[f"bn{i}.weight"][:, None, None] + w[f"bn{i}.bias"][:, None, None]
        n, channels, height, width = x.shape
        x = np.maximum(x, 0).reshape(n, channels, height // 2, 2, width // 2, 2).max((3, 5))
    x = x.reshape(len(x), -1)
    if training and batch.keep is not None:
        x = x * batch.keep * 2
    x = np.maximum(x @ w["fc1.weight"].T + w["fc1.bias"], 0)
    logits = x @ w["fc2.weight"].T + w["fc2.bias"]
    log_sum = np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1)) + logits.max(1)
    loss = (log_sum - logits[np.arange(len(logits)), batch.labels]).mean()
    return Reference(logits, float(loss), statistics, biased)


@pytest.fixture(scope="session")
def updated() -> Callable[..., np.ndarray]:
    """Return a function that applies an optimizer's published formula, in NumPy."""
    return _updated


def _updated(
    optimizer: str,
    weight: np.ndarray,
    grads: list[np.ndarray],
    *,
    lr: float,
    step: int = 0,
    **slots,
) -> np.ndarray:
    """Return `weight` after an update for each gradient.

    Source: torch.optim's documentation of Adam, RMSprop and SGD, torch 2.14.
    """
    w = weight.copy()
    state = {name: array.copy() for name, array in slots.items()}
    for t, g in enumerate(grads, start=step + 1):
        if optimizer == "sgd":
            b = state["momentum_buffer"] = 0.9 * state["momentum_buffer"] + g
            w -= lr * b
        elif optimizer == "rmsprop":
            v = state["square_avg"] = 0.99 * state["square_avg"] + 0.01 * g**2
            w -= lr * g / (np.sqrt(v) + 1e-8)
        else:
            m = state["exp_avg"] = 0.9 * state["exp_avg"] + 0.1 * g
            v = state["exp_avg_sq"] = 0.999 * state["exp_avg_sq"] + 0.001 * g**2
            w -= lr * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return w
