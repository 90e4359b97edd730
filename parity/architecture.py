"""What SimpleCNN is made of: the canonical names and shapes of its tensors, which are PyTorch's.

Source: the article "Cross-GPU Reproducibility": 3 x [conv 3x3, padding 1 -> BatchNorm -> ReLU ->
max-pool 2] with 32, 64, 128 channels, flatten (channel-major), dropout 0.5, linear 256, ReLU,
linear 10.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from parity import streams

CHANNELS = (3, 32, 64, 128)
NUM_FEATURES = 128 * 4 * 4
NUM_HIDDEN = 256
NUM_CLASSES = 10
DROPOUT_RATE = 0.5
BATCH_NORM_EPS = 1e-5
BATCH_NORM_MOMENTUM = 0.1


class Tensor(NamedTuple):
    """One tensor of the network."""

    shape: tuple[int, ...]
    fan_in: int | None
    """Number of inputs a unit sums; None where the initial value is a constant."""


def _layers() -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for layer, (inputs, outputs) in enumerate(pairwise(CHANNELS), start=1):
        tensors[f"conv{layer}.weight"] = Tensor((outputs, inputs, 3, 3), inputs * 9)
        tensors[f"conv{layer}.bias"] = Tensor((outputs,), inputs * 9)
        tensors[f"bn{layer}.weight"] = Tensor((outputs,), None)
        tensors[f"bn{layer}.bias"] = Tensor((outputs,), None)
    sizes = (NUM_FEATURES, NUM_HIDDEN, NUM_CLASSES)
    for layer, (inputs, outputs) in enumerate(pairwise(sizes), start=1):
        tensors[f"fc{layer}.weight"] = Tensor((outputs, inputs), inputs)
        tensors[f"fc{layer}.bias"] = Tensor((outputs,), inputs)
    return tensors


PARAMETERS = _layers()
"""Trained tensors by canonical name, in the order of the forward pass."""

BUFFERS = {
    f"bn{layer}.{name}": Tensor(() if name == "num_batches_tracked" else (channels,), None)
    for layer, channels in enumerate(CHANNELS[1:], start=1)
    for name in ("running_mean", "running_var", "num_batches_tracked")
}
"""BatchNorm's buffers by canonical name; num_batches_tracked is int64, as in PyTorch."""

_ONES = ("bn1.weight", "bn2.weight", "bn3.weight", *(n for n in BUFFERS if "running_var" in n))


def initial_weights(seed: int) -> dict[str, np.ndarray]:
    """Return the seed's parameters and buffers by canonical name, float32 (and int64)."""
    weights: dict[str, np.ndarray] = {}
    for name, tensor in (PARAMETERS | BUFFERS).items():
        if tensor.fan_in is not None:
            weights[name] = streams.initial_weight(seed, name, tensor.shape, tensor.fan_in)
        elif name.endswith("num_batches_tracked"):
            weights[name] = np.zeros((), np.int64)
        else:
            weights[name] = np.full(tensor.shape, float(name in _ONES), np.float32)
    return weights
