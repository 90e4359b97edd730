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
from jax_impl.engines import ENGINES, Engine
from jax_impl.precision import emulated
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
    """Return the largest of every 2x2 window; among equals the first one gets the gradient.

    Not nnx.max_pool, whose gradient on CPUs takes XLA 40 % of a training step.
    """
    return ops.max_pool(x)


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
        """Return (n, H, W, C) normalised over n, H, W; in training also update the statistics.

        Computes in the type of its parameters, whatever that of `x`, which the result has.
        """
        given, x = x.dtype, x.astype(self.scale[...].dtype)
        if self.use_running_average:
            mean, var = self.mean[...], self.var[...]
        else:
            mean = x.mean((0, 1, 2))
            var = jnp.square(x - mean).mean((0, 1, 2))
            self._update(self.mean, mean)
            self._update(self.var, unbiased(var, x.size // x.shape[-1]))
            self.num_batches_tracked[...] += 1
        y = (x - mean) * jax.lax.rsqrt(var + BATCH_NORM_EPS) * self.scale[...] + self.bias[...]
        return y.astype(given)

    @staticmethod
    def _update(running: nnx.BatchStat, batch: Array) -> None:
        old = (1 - BATCH_NORM_MOMENTUM) * running[...]
        running[...] = old + BATCH_NORM_MOMENTUM * jax.lax.stop_gradient(batch)


class SimpleCNN(nnx.Module):
    """3 x [conv, BatchNorm, ReLU, max-pool], dropout, two linear layers.

    Args:
        dtype: Of weights and buffers.
        exact: Operations (of parity.exact.operations) that are those of `jax_impl.ops`. Empty: all
            are Flax's own.
        engine: Computes the exact products.
        operand_bits: Mantissa bits to which products' operands are rounded; None rounds nothing.
        amp: The low precision of a mixed forward pass, see parity.mixed_precision; None mixes none.

    Source: the article "Cross-GPU Reproducibility".
    """

    def __init__(
        self,
        dtype: DTypeLike,
        exact: frozenset[str] = frozenset(),
        engine: Engine = ENGINES["float64"],
        *,
        operand_bits: int | None = None,
        amp: DTypeLike | None = None,
    ) -> None:
        self.exact, self.engine = exact, engine
        rngs = nnx.Rngs(0)  # Flax asks for it; canonical weights come later, and zeros are quick.
        zeros = nnx.initializers.zeros
        options: dict[str, Any] = {"kernel_init": zeros, "param_dtype": dtype, "dtype": amp}
        options["rngs"] = rngs
        conv_options = options.copy()
        if operand_bits is not None:
            conv_options["conv_general_dilated"] = emulated(
                jax.lax.conv_general_dilated, operand_bits
            )
            options["dot_general"] = emulated(jax.lax.dot_general, operand_bits)
        for layer, inputs in enumerate(CHANNELS[:-1], start=1):
            outputs = CHANNELS[layer]
            conv = nnx.Conv(inputs, outputs, (3, 3), padding=1, **conv_options)
            norm = BatchNorm(outputs, dtype)
            setattr(self, f"conv{layer}", conv)
            setattr(self, f"bn{layer}", norm)
        self.fc1 = nnx.Linear(NUM_FEATURES, NUM_HIDDEN, **options)
        self.fc2 = nnx.Linear(NUM_HIDDEN, NUM_CLASSES, **options)

    def stages(self, keep: Array | None) -> dict[str, Callable[[Array], Array]]:
        """Return the forward pass as named functions, in order.

        Args:
            keep: Features that dropout keeps. Shape (n, NUM_FEATURES), bool. None: all of them.
        """
        conv, dense = native, native
        if "dot" in self.exact:
            conv, dense = (partial(f, engine=self.engine) for f in (exact_conv, exact_dense))
        batch_norm = exact_batch_norm if "batchnorm" in self.exact else native
        exact_selection = (ops.relu, exact_dropout)
        relu, drop = exact_selection if "selection" in self.exact else (nnx.relu, dropout)
        stages: dict[str, Callable[[Array], Array]] = {}
        for layer in range(1, len(CHANNELS)):
            stages[f"conv{layer}"] = partial(conv, getattr(self, f"conv{layer}"))
            stages[f"bn{layer}"] = partial(batch_norm, getattr(self, f"bn{layer}"))
            stages[f"relu{layer}"] = relu
            stages[f"pool{layer}"] = max_pool
        stages["flatten"] = flatten
        stages["dropout"] = lambda x: drop(x, keep)
        stages["fc1"] = partial(dense, self.fc1)
        stages["relu4"] = relu
        stages["fc2"] = partial(dense, self.fc2)
        return stages

    def __call__(self, images: Array, keep: Array | None = None) -> Array:
        """Return the logits (n, 10) of normalised images (n, 32, 32, 3)."""
        x = images
        for stage in self.stages(keep).values():
            x = stage(x)
        return x


def native(layer: Callable[[Array], Array], x: Array) -> Array:
    """Return what a layer of Flax's own makes of `x`."""
    return layer(x)


def exact_conv(layer: nnx.Conv, x: Array, engine: Engine) -> Array:
    """Return the exact convolution; nothing asks for the gradient of images, of 3 channels."""
    assert layer.bias is not None
    needs_input_grad = layer.in_features > CHANNELS[0]
    return ops.conv(x, layer.kernel[...], layer.bias[...], engine, needs_input_grad)


def exact_dense(layer: nnx.Linear, x: Array, engine: Engine) -> Array:
    """Return the exact linear layer."""
    assert layer.bias is not None
    return ops.dense(x, layer.kernel[...], layer.bias[...], engine)


def exact_batch_norm(norm: BatchNorm, x: Array) -> Array:
    """Return the exact batch normalisation; in training also update the statistics."""
    mean, var = norm.mean[...], norm.var[...]
    if not norm.use_running_average:
        keep = 1 - BATCH_NORM_MOMENTUM
        statistics = ops.batch_statistics(jax.lax.stop_gradient(x))
        mean, var, unbiased_var = statistics
        norm.mean[...] = ops.running_average(norm.mean[...], mean, keep)
        norm.var[...] = ops.running_average(norm.var[...], unbiased_var, keep)
        norm.num_batches_tracked[...] += 1
    return ops.batch_norm(x, norm.scale[...], norm.bias[...], mean, var, BATCH_NORM_EPS)


def exact_dropout(x: Array, keep: Array | None) -> Array:
    """Return the exact dropout; None keeps all."""
    return x if keep is None else ops.dropout(x, keep)
