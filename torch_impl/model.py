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
from torch_impl.engines import Engine


def max_pool(x: Tensor) -> Tensor:
    """Return the largest of every 2x2 window; among equals the first one gets the gradient."""
    return F.max_pool2d(x, 2)


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

    Source: the article "Cross-GPU Reproducibility".
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
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
        stages: dict[str, Callable[[Tensor], Tensor]] = {}
        for layer in range(1, len(CHANNELS)):
            stages[f"conv{layer}"] = self.get_submodule(f"conv{layer}")
            stages[f"bn{layer}"] = self.get_submodule(f"bn{layer}")
            stages[f"relu{layer}"] = F.relu
            stages[f"pool{layer}"] = max_pool
        stages["flatten"] = flatten
        stages["dropout"] = lambda x: dropout(x, keep)
        stages["fc1"] = self.fc1
        stages["relu4"] = F.relu
        stages["fc2"] = self.fc2
        return stages

    def forward(self, images: Tensor, keep: Tensor | None = None) -> Tensor:
        """Return the logits (n, 10) of normalised images (n, 3, 32, 32)."""
        x = images
        for stage in self.stages(keep).values():
            x = stage(x)
        return x


class ExactSimpleCNN(SimpleCNN):
    """SimpleCNN in the exact arithmetic of `torch_impl.ops`."""

    def __init__(self, dtype: torch.dtype, engine: Engine) -> None:
        super().__init__(dtype)
        self._engine = engine

    def stages(self, keep: Tensor | None) -> dict[str, Callable[[Tensor], Tensor]]:
        """See SimpleCNN."""
        stages: dict[str, Callable[[Tensor], Tensor]] = {}
        for layer in range(1, len(CHANNELS)):
            conv, norm = getattr(self, f"conv{layer}"), getattr(self, f"bn{layer}")
            stages[f"conv{layer}"] = partial(self._product, ops.Conv, conv)
            stages[f"bn{layer}"] = partial(self._batch_norm, norm)
            stages[f"relu{layer}"] = ops.Relu.apply
            stages[f"pool{layer}"] = ops.MaxPool.apply
        stages["flatten"] = flatten
        stages["dropout"] = lambda x: x if keep is None else ops.Dropout.apply(x, keep)
        stages["fc1"] = partial(self._product, ops.Dense, self.fc1)
        stages["relu4"] = ops.Relu.apply
        stages["fc2"] = partial(self._product, ops.Dense, self.fc2)
        return stages

    def _batch_norm(self, norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
        buffers: dict[str, Any] = dict(norm.named_buffers())
        running_mean, running_var = buffers["running_mean"], buffers["running_var"]
        mean, var = running_mean, running_var
        if self.training:
            with torch.no_grad():
                keep = 1 - BATCH_NORM_MOMENTUM
                mean, var, unbiased = ops.batch_statistics(x)
                running_mean.copy_(ops.running_average(running_mean, mean, keep))
                running_var.copy_(ops.running_average(running_var, unbiased, keep))
                buffers["num_batches_tracked"].add_(1)
        return ops.BatchNorm.apply(x, norm.weight, norm.bias, mean, var, BATCH_NORM_EPS)

    def _product(self, function: Any, layer: nn.Conv2d | nn.Linear, x: Tensor) -> Tensor:
        return function.apply(x, layer.weight, layer.bias, self._engine)
