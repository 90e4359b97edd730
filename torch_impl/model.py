"""SimpleCNN in PyTorch."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from parity.architecture import (
    BATCH_NORM_EPS,
    BATCH_NORM_MOMENTUM,
    CHANNELS,
    DROPOUT_RATE,
    NUM_CLASSES,
    NUM_FEATURES,
    NUM_HIDDEN,
)
from torch_impl import ops
from torch_impl.engines import ENGINES, Engine
from torch_impl.precision import emulated


def max_pool(x: Tensor) -> Tensor:
    """Return the largest of every 2x2 window; among equals the first one gets the gradient.

    Not F.max_pool2d, whose gradient on GPUs adds in any order and is refused as such.
    """
    return ops.MaxPool.apply(x)


def flatten(x: Tensor) -> Tensor:
    """Return (n, C, H, W) as (n, C*H*W): channel-major."""
    return x.flatten(1)


def dropout(x: Tensor, keep: Tensor | None) -> Tensor:
    """Return `x` with the features outside `keep` zero and the others scaled; None keeps all."""
    return x if keep is None else x * keep / (1 - DROPOUT_RATE)


class PatchConv2d(nn.Conv2d):
    """A 3x3 convolution with padding 1 as patches times weights, for images as its input.

    On CPUs oneDNN sums the weight gradient of three input channels one term after the other,
    131,072 of them at batch 128: a relative error of 2.6e-5 on CIFAR-10. A matrix product has 1e-6.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return (n, out_channels, H, W) of (n, in_channels, H, W)."""
        n, _, height, width = input.shape
        patches = F.unfold(input, 3, padding=1)
        assert self.bias is not None
        kernels = self.weight.flatten(1).expand(n, -1, -1)
        return torch.baddbmm(self.bias[:, None], kernels, patches).view(n, -1, height, width)


class SimpleCNN(nn.Module):
    """3 x [conv, BatchNorm, ReLU, max-pool], dropout, two linear layers.

    Args:
        dtype: Of weights and buffers.
        exact: Operations (of parity.exact.operations) that are those of `torch_impl.ops`. Empty:
            all are PyTorch's own.
        engine: Computes the exact products.
        operand_bits: Mantissa bits to which products' operands are rounded; None rounds nothing.

    Source: the article "Cross-GPU Reproducibility".
    """

    def __init__(
        self,
        dtype: torch.dtype,
        exact: frozenset[str] = frozenset(),
        engine: Engine = ENGINES["float64"],
        operand_bits: int | None = None,
    ) -> None:
        super().__init__()
        self.exact, self.engine, self.operand_bits = exact, engine, operand_bits
        for layer, inputs in enumerate(CHANNELS[:-1], start=1):
            outputs = CHANNELS[layer]
            conv_class = PatchConv2d if layer == 1 else nn.Conv2d
            conv = conv_class(inputs, outputs, 3, padding=1, dtype=dtype)
            norm = nn.BatchNorm2d(outputs, BATCH_NORM_EPS, BATCH_NORM_MOMENTUM, dtype=dtype)
            self.add_module(f"conv{layer}", conv)
            self.add_module(f"bn{layer}", norm)
        self.fc1 = nn.Linear(NUM_FEATURES, NUM_HIDDEN, dtype=dtype)
        self.fc2 = nn.Linear(NUM_HIDDEN, NUM_CLASSES, dtype=dtype)

    def stages(self, keep: Tensor | None) -> dict[str, Callable[[Tensor], Tensor]]:
        """Return the forward pass as named functions, in order.

        Args:
            keep: Features that dropout keeps. Shape (n, NUM_FEATURES), bool. None: all of them.
        """
        conv, dense = native, native
        if "dot" in self.exact:
            conv, dense = (partial(f, engine=self.engine) for f in (exact_conv, exact_dense))
        elif self.operand_bits is not None:
            conv = dense = partial(emulated, bits=self.operand_bits)
        batch_norm = exact_batch_norm if "batchnorm" in self.exact else native
        exact_selection = (ops.Relu.apply, exact_dropout)
        relu, drop = exact_selection if "selection" in self.exact else (F.relu, dropout)
        stages: dict[str, Callable[[Tensor], Tensor]] = {}
        for layer in range(1, len(CHANNELS)):
            stages[f"conv{layer}"] = partial(conv, self.get_submodule(f"conv{layer}"))
            stages[f"bn{layer}"] = partial(batch_norm, self.get_submodule(f"bn{layer}"))
            stages[f"relu{layer}"] = relu
            stages[f"pool{layer}"] = max_pool
        stages["flatten"] = flatten
        stages["dropout"] = lambda x: drop(x, keep)
        stages["fc1"] = partial(dense, self.fc1)
        stages["relu4"] = relu
        stages["fc2"] = partial(dense, self.fc2)
        return stages

    def forward(self, images: Tensor, keep: Tensor | None = None) -> Tensor:
        """Return the logits (n, 10) of normalised images (n, 3, 32, 32)."""
        x = images
        for stage in self.stages(keep).values():
            x = stage(x)
        return x


def native(layer: nn.Module, x: Tensor) -> Tensor:
    """Return what a layer of PyTorch's own makes of `x`."""
    return layer(x)


def exact_conv(layer: Any, x: Tensor, engine: Engine) -> Tensor:
    """Return the exact convolution."""
    return ops.Conv.apply(x, layer.weight, layer.bias, engine)


def exact_dense(layer: Any, x: Tensor, engine: Engine) -> Tensor:
    """Return the exact linear layer."""
    return ops.Dense.apply(x, layer.weight, layer.bias, engine)


def exact_batch_norm(norm: Any, x: Tensor) -> Tensor:
    """Return the exact batch normalisation; in training also update the statistics."""
    mean, var = norm.running_mean, norm.running_var
    if norm.training:
        with torch.no_grad():
            keep = 1 - BATCH_NORM_MOMENTUM
            mean, var, unbiased = ops.batch_statistics(x)
            norm.running_mean.copy_(ops.running_average(norm.running_mean, mean, keep))
            norm.running_var.copy_(ops.running_average(norm.running_var, unbiased, keep))
            norm.num_batches_tracked.add_(1)
    return ops.BatchNorm.apply(x, norm.weight, norm.bias, mean, var, BATCH_NORM_EPS)


def exact_dropout(x: Tensor, keep: Tensor | None) -> Tensor:
    """Return the exact dropout; None keeps all."""
    return x if keep is None else ops.Dropout.apply(x, keep)
