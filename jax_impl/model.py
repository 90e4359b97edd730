"""SimpleCNN in Flax NNX, NHWC."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array
from jax.typing import DTypeLike

from jax_impl import ops
from jax_impl.engines import Engine
from parity.architecture import (
    BATCH_NORM_EPS,
    BATCH_NORM_MOMENTUM,
    CHANNELS,
    DROPOUT_RATE,
    NUM_CLASSES,
    NUM_FEATURES,
    NUM_HIDDEN,
)


def max_pool(x: Array) -> Array:
    """Return the largest of every 2x2 window; among equals the first one gets the gradient."""
    return nnx.max_pool(x, (2, 2), strides=(2, 2))


def flatten(x: Array) -> Array:
    """Return (n, H, W, C) as (n, C*H*W): channel-major, as PyTorch does."""
    return x.transpose(0, 3, 1, 2).reshape(len(x), -1)


def dropout(x: Array, keep: Array | None) -> Array:
    """Return `x` with the features outside `keep` zero and the others scaled; None keeps all."""
    return x if keep is None else x * keep / (1 - DROPOUT_RATE)


def unbiased(var: Array, count: int) -> Array:
    """Return the estimate of a population's variance from the variance of `count` samples."""
    return var * (count / (count - 1))


class BatchNorm(nnx.Module):
    """Batch normalisation with PyTorch's running statistics.

    nnx.BatchNorm keeps the biased running variance, PyTorch the unbiased one, n / (n - 1) times it.
    """

    def __init__(self, num_channels: int, dtype: DTypeLike) -> None:
        self.scale = nnx.Param(jnp.ones(num_channels, dtype))
        self.bias = nnx.Param(jnp.zeros(num_channels, dtype))
        self.mean = nnx.BatchStat(jnp.zeros(num_channels, dtype))
        self.var = nnx.BatchStat(jnp.ones(num_channels, dtype))
        self.num_batches_tracked = nnx.BatchStat(jnp.zeros((), jnp.int32))
        self.use_running_average = False

    def __call__(self, x: Array) -> Array:
        """Return (n, H, W, C) normalised over n, H, W; in training also update the statistics."""
        if self.use_running_average:
            mean, var = self.mean[...], self.var[...]
        else:
            mean = x.mean((0, 1, 2))
            var = jnp.square(x - mean).mean((0, 1, 2))
            self._update(self.mean, mean)
            self._update(self.var, unbiased(var, x.size // x.shape[-1]))
            self.num_batches_tracked[...] += 1
        return (x - mean) * jax.lax.rsqrt(var + BATCH_NORM_EPS) * self.scale[...] + self.bias[...]

    @staticmethod
    def _update(running: nnx.BatchStat, batch: Array) -> None:
        old = (1 - BATCH_NORM_MOMENTUM) * running[...]
        running[...] = old + BATCH_NORM_MOMENTUM * jax.lax.stop_gradient(batch)


class SimpleCNN(nnx.Module):
    """3 x [conv, BatchNorm, ReLU, max-pool], dropout, two linear layers.

    Source: the article "Cross-GPU Reproducibility".
    """

    def __init__(self, dtype: DTypeLike) -> None:
        rngs = nnx.Rngs(0)  # Flax asks for it; canonical weights come later, and zeros are quick.
        zeros = nnx.initializers.zeros
        for layer, inputs in enumerate(CHANNELS[:-1], start=1):
            outputs = CHANNELS[layer]
            conv = nnx.Conv(
                inputs, outputs, (3, 3), padding=1, kernel_init=zeros, param_dtype=dtype, rngs=rngs
            )
            norm = BatchNorm(outputs, dtype)
            setattr(self, f"conv{layer}", conv)
            setattr(self, f"bn{layer}", norm)
        options: dict[str, Any] = {"kernel_init": zeros, "param_dtype": dtype, "rngs": rngs}
        self.fc1 = nnx.Linear(NUM_FEATURES, NUM_HIDDEN, **options)
        self.fc2 = nnx.Linear(NUM_HIDDEN, NUM_CLASSES, **options)

    def stages(self, keep: Array | None) -> dict[str, Callable[[Array], Array]]:
        """Return the forward pass as named functions, in order.

        Args:
            keep: Features that dropout keeps. Shape (n, NUM_FEATURES), bool. None: all of them.
        """
        stages: dict[str, Callable[[Array], Array]] = {}
        for layer in range(1, len(CHANNELS)):
            stages[f"conv{layer}"] = getattr(self, f"conv{layer}")
            stages[f"bn{layer}"] = getattr(self, f"bn{layer}")
            stages[f"relu{layer}"] = nnx.relu
            stages[f"pool{layer}"] = max_pool
        stages["flatten"] = flatten
        stages["dropout"] = lambda x: dropout(x, keep)
        stages["fc1"] = self.fc1
        stages["relu4"] = nnx.relu
        stages["fc2"] = self.fc2
        return stages

    def __call__(self, images: Array, keep: Array | None = None) -> Array:
        """Return the logits (n, 10) of normalised images (n, 32, 32, 3)."""
        x = images
        for stage in self.stages(keep).values():
            x = stage(x)
        return x


class ExactSimpleCNN(SimpleCNN):
    """SimpleCNN in the exact arithmetic of `jax_impl.ops`."""

    def __init__(self, dtype: DTypeLike, engine: Engine) -> None:
        super().__init__(dtype)
        self._engine = engine

    def stages(self, keep: Array | None) -> dict[str, Callable[[Array], Array]]:
        """See SimpleCNN."""
        stages: dict[str, Callable[[Array], Array]] = {}
        for layer in range(1, len(CHANNELS)):
            conv, norm = getattr(self, f"conv{layer}"), getattr(self, f"bn{layer}")
            stages[f"conv{layer}"] = partial(self._conv, conv, needs_input_grad=layer > 1)
            stages[f"bn{layer}"] = partial(_batch_norm, norm)
            stages[f"relu{layer}"] = ops.relu
            stages[f"pool{layer}"] = ops.max_pool
        stages["flatten"] = flatten
        stages["dropout"] = lambda x: x if keep is None else ops.dropout(x, keep)
        stages["fc1"] = partial(self._dense, self.fc1)
        stages["relu4"] = ops.relu
        stages["fc2"] = partial(self._dense, self.fc2)
        return stages

    def _conv(self, layer: nnx.Conv, x: Array, *, needs_input_grad: bool) -> Array:
        assert layer.bias is not None
        return ops.conv(x, layer.kernel[...], layer.bias[...], self._engine, needs_input_grad)

    def _dense(self, layer: nnx.Linear, x: Array) -> Array:
        assert layer.bias is not None
        return ops.dense(x, layer.kernel[...], layer.bias[...], self._engine)


def _batch_norm(norm: BatchNorm, x: Array) -> Array:
    mean, var = norm.mean[...], norm.var[...]
    if not norm.use_running_average:
        keep = 1 - BATCH_NORM_MOMENTUM
        statistics = ops.batch_statistics(jax.lax.stop_gradient(x))
        mean, var, unbiased_var = statistics
        norm.mean[...] = ops.running_average(norm.mean[...], mean, keep)
        norm.var[...] = ops.running_average(norm.var[...], unbiased_var, keep)
        norm.num_batches_tracked[...] += 1
    return ops.batch_norm(x, norm.scale[...], norm.bias[...], mean, var, BATCH_NORM_EPS)
