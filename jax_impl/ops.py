"""The exact operations in JAX: float32 in, float32 out, the same bits from every engine.

Each operation is a mathematical definition, given in its docstring, of which nothing depends on the
order of a sum, on fused multiply-add or on a library's exp. Below, f(...) stands for `to_float32`,
S(...) for the exact sum `total`, and a * b + c for the float64 value of an exact product of two
float32 plus a third, rounded once. The proofs are in parity.exact. Needs jax_enable_x64.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jax_impl import shards
from jax_impl.engines import Engine
from parity.exact.rules import SMALLEST_NORMAL, bias_corrections, operand_bits, term_bits
from parity.exact.transcendental import (
    ARGUMENT_BITS,
    LOG_BITS,
    SMALLEST_ARGUMENT,
    exp,
    log,
)
from parity.optimizers import ADAM_BETAS, EPS, RMSPROP_ALPHA, SGD_MOMENTUM


def double(x: Array) -> Array:
    """Return x as float64."""
    wide = x.astype(jnp.float64)
    assert wide.dtype == jnp.float64, "jax_enable_x64 is off"  # JAX would go on in float32
    return wide


def to_float32(x: Array) -> Array:
    """Return float64 values rounded to float32, those below 2**-126 flushed to +0.

    The choice comes after the cast: XLA for GPUs replaces float64 -> float32 -> float64 by nothing.
    """
    return jnp.where(jnp.abs(x) < SMALLEST_NORMAL, 0.0, x.astype(jnp.float32))


def power_of_two(exponent: Array) -> Array:
    """Return 2**exponent, float64, of an integer scalar from -1022 to 1023, made of its bits."""
    return jax.lax.bitcast_convert_type((exponent.astype(jnp.int64) + 1023) << 52, jnp.float64)


class Scale(NamedTuple):
    """How x is quantised: q = round_half_even(x * 2**(bits - exponent)), so that |q| <= 2**bits."""

    exponent: Array
    """Of max|x|, as frexp gives it; 0 for a tensor of zeros."""
    bits: int
    factor: Array
    """2**(bits - exponent), float64; NaN where the tensor is not finite."""


def quantise(x: Array, scale: Scale) -> Array:
    """Return the integers q, as float64, that stand for q * 2**(exponent - bits)."""
    return jnp.round(double(x) * scale.factor)


def scale_of(x: Array, bits: int) -> Scale:
    """Return the scale of a tensor: one power of two for all of it.

    A tensor that holds NaN or infinity has none. Subnormal numbers must not occur.
    """
    return _scale(_largest(x), bits)


_INTEGERS = {"float32": jnp.int32, "float64": jnp.int64}
_FIELDS = {"int32": (23, 126), "int64": (52, 1022)}
"""Of the floating-point type of that size: digits after the point, bias of frexp."""


def _largest(x: Array) -> Array:
    """Return the bits of max|x|: as integers NaN and infinity exceed every number."""
    integer = _INTEGERS[x.dtype.name]
    return (jax.lax.bitcast_convert_type(x, integer) & jnp.iinfo(integer).max).max()


def _scale(largest: Array, bits: int) -> Scale:
    """Return the scale of the tensor, or the shard of one, that has these largest bits."""
    largest = shards.largest(largest)
    digits, bias = _FIELDS[largest.dtype.name]
    field = largest >> digits
    exponent = jnp.where(largest == 0, 0, field - bias)
    finite = field <= 2 * bias + 2
    return Scale(exponent, bits, jnp.where(finite, power_of_two(bits - exponent), jnp.nan))


BLOCK_IMAGES = 8
"""Images of a block: whose patches the caches of a CPU hold."""


def over_blocks(
    function: Callable[..., Array], join: Callable[[Array], Array], *arrays: Array
) -> Array:
    """Return what `function` makes of blocks of images, stacked and joined.

    On CPUs a block is so small that work goes through memory once, which takes a third of the
    time; elsewhere it is the whole batch. No bit depends on it.

    Args:
        function: Of a block of each array.
        join: Of the stacked results, (blocks, ...).
        arrays: Along their first axis. The last block is filled up with zeros.
    """
    n = len(arrays[0])
    size = min(n, BLOCK_IMAGES)
    num_blocks = -(-n // size)

    def blocks(x: Array) -> Array:
        filled = jnp.pad(x, ((0, num_blocks * size - n), *((0, 0),) * (x.ndim - 1)))
        return filled.reshape(num_blocks, size, *x.shape[1:])

    def small(*arrays: Array) -> Array:
        return join(jax.lax.map(lambda block: function(*block), tuple(map(blocks, arrays))))

    def whole(*arrays: Array) -> Array:
        return join(function(*arrays)[None])

    return jax.lax.platform_dependent(*arrays, cpu=small, default=whole)


def _largest_of_blocks(parts: Array) -> Array:
    return parts.max(0)


def _sum_of_blocks(parts: Array) -> Array:
    return parts.sum(0)


def _all_images(n: int) -> Callable[[Array], Array]:
    return lambda parts: parts.reshape(-1, *parts.shape[2:])[:n]


def dot(engine: Engine, a: Array, b: Array, like: tuple[Scale, Scale]) -> Array:
    """Return f(sum over k of a_ik b_kj, scaled): an exact integer matrix product, rounded once.

    Args:
        engine: Computes the product.
        a: Its operands. Shape (digits, i, k).
        b: Its operands. Shape (digits, k, j).
        like: How both were quantised, which scales the product.
    """
    return to_float32(engine.product(a, b) * _unit(*like))


def _unit(a: Scale, b: Scale) -> Array:
    """Return what 1 stands for in a product; NaN where a tensor is not finite: digits lose it."""
    unit = power_of_two(a.exponent + b.exponent - (a.bits + b.bits))
    return jnp.where(jnp.isnan(a.factor + b.factor), jnp.nan, unit)


def total(x: Array, dims: tuple[int, ...], factor: Array | None = None) -> Array:
    """Return the sum S over `dims`, float64: the terms quantised, then added without rounding.

    Args:
        x: The terms.
        dims: Axes to sum over.
        factor: If given, of x's shape: the terms are the products with it, exact in float64.
    """
    arrays = (x,) if factor is None else (x, factor)

    def terms(x: Array, factor: Array | None = None) -> Array:
        return x if factor is None else double(x) * double(factor)

    def sums(*block: Array) -> Array:
        return quantise(terms(*block), scale).sum(dims)

    bits = term_bits(shards.count() * math.prod(x.shape[dim] for dim in dims))
    largest = over_blocks(lambda *block: _largest(terms(*block)), _largest_of_blocks, *arrays)
    scale = _scale(largest, bits)
    integers = shards.total(over_blocks(sums, _sum_of_blocks, *arrays))
    return integers * power_of_two(scale.exponent - bits)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def dense(x: Array, kernel: Array, bias: Array, engine: Engine) -> Array:
    """y = f(f(x W) + b): (n, outputs) of x (n, inputs), kernel (inputs, outputs)."""
    return _dense_forward(x, kernel, bias, engine)[0]


def _dense_forward(x: Array, kernel: Array, bias: Array, engine: Engine):
    bits = operand_bits(max(*kernel.shape, shards.count() * len(x)))
    sx, sw = scale_of(x, bits), scale_of(kernel, bits)
    a, w = engine.operand(quantise(x, sx)), engine.operand(quantise(kernel, sw))
    product = dot(engine, a, w, (sx, sw))
    return to_float32(double(product) + double(bias)), (x, kernel, sx, sw)


def _dense_backward(engine: Engine, residuals, grad: Array):
    """dx = f(g W^T), dW = f(x^T g), db = f(S g)."""
    x, kernel, sx, sw = residuals
    sg = scale_of(grad, sx.bits)
    g = engine.operand(quantise(grad, sg))
    w, a = engine.operand(quantise(kernel, sw)), engine.operand(quantise(x, sx))
    dx = dot(engine, g, w.transpose(0, 2, 1), (sg, sw))
    dw = to_float32(shards.total(engine.product(a.transpose(0, 2, 1), g)) * _unit(sx, sg))
    return dx, dw, to_float32(total(grad, (0,)))


def patches(x: Array) -> Array:
    """Return the 3x3 neighbourhoods of (digits, n, H, W, C) as (digits, n * H * W, 9 * C)."""
    digits, n, height, width, channels = x.shape
    padded = jnp.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1), (0, 0)))
    shifted = [
        padded[:, :, row : row + height, column : column + width]
        for row in range(3)
        for column in range(3)
    ]
    return jnp.concatenate(shifted, axis=-1).reshape(digits, n * height * width, 9 * channels)


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def conv(x: Array, kernel: Array, bias: Array, engine: Engine, needs_input_grad: bool) -> Array:
    """y = f(f(patches(x) W) + b): a 3x3 convolution with padding 1.

    Returns (n, H, W, O) of x (n, H, W, I), kernel (3, 3, I, O), bias (O,).
    """
    return _conv_forward(x, kernel, bias, engine, needs_input_grad)[0]


def _conv_forward(x: Array, kernel: Array, bias: Array, engine: Engine, needs_input_grad: bool):
    n, height, width, _ = x.shape
    inputs, outputs = kernel.shape[2:]
    bits = operand_bits(max(9 * inputs, 9 * outputs, shards.count() * n * height * width))
    sx, sw = scale_of(x, bits), scale_of(kernel, bits)
    kernels = engine.operand(quantise(kernel, sw).reshape(-1, outputs))

    def block(x: Array) -> Array:
        product = dot(engine, patches(engine.operand(quantise(x, sx))), kernels, (sx, sw))
        return to_float32(double(product) + double(bias)).reshape(-1, height, width, outputs)

    return over_blocks(block, _all_images(n), x), (x, kernel, sx, sw)


def _conv_backward(engine: Engine, needs_input_grad: bool, residuals, grad: Array):
    """dx = f(patches(g) W'), W' the flipped kernels; dW = f(patches(x)^T g); db = f(S g)."""
    x, kernel, sx, sw = residuals
    n, outputs = len(x), grad.shape[-1]
    sg = scale_of(grad, sx.bits)
    flipped = quantise(kernel, sw)[::-1, ::-1].transpose(0, 1, 3, 2).reshape(9 * outputs, -1)
    kernels = engine.operand(flipped)

    def input_gradient(grad: Array) -> Array:
        rows = patches(engine.operand(quantise(grad, sg)))
        return dot(engine, rows, kernels, (sg, sw)).reshape(-1, *x.shape[1:])

    def weight_gradient(x: Array, grad: Array) -> Array:
        rows = patches(engine.operand(quantise(x, sx)))
        g = engine.operand(quantise(grad, sg)).reshape(len(rows), -1, outputs)
        return engine.product(rows.transpose(0, 2, 1), g)

    dx = jnp.zeros_like(x)
    if needs_input_grad:
        dx = over_blocks(input_gradient, _all_images(n), grad)
    # Integers again: adding the products of the images keeps every bit.
    sums = over_blocks(weight_gradient, _sum_of_blocks, x, grad)
    dw = to_float32(shards.total(sums) * _unit(sg, sx)).reshape(kernel.shape)
    return dx, dw, to_float32(total(grad, (0, 1, 2)))


def reciprocal_square_root(x: Array) -> Array:
    """Return f(1 / f(sqrt(x))), both correctly rounded; x is float32, positive."""
    return to_float32(1.0 / double(square_root(x)))


def square_root(x: Array) -> Array:
    """Return the correctly rounded root of float32 x >= 0; NaN of NaN and of infinity.

    The rounded float64 root may be one float32 off its place: the exact squares of the two
    midpoints around it decide. Infinity ends as NaN, because a division by it would hide it.
    """
    wide = double(x)
    root = to_float32(jnp.sqrt(wide))
    above = jnp.nextafter(root, jnp.full_like(root, jnp.inf))
    below = jnp.nextafter(root, jnp.zeros_like(root))
    # A midpoint has 25 bits, so its square is exact in float64.
    upper = (double(root) + double(above)) * 0.5
    lower = (double(root) + double(below)) * 0.5
    root = jnp.where(upper * upper < wide, above, root)
    root = jnp.where(lower * lower > wide, below, root)
    return jnp.where(x < jnp.inf, root, jnp.nan)


def centre(x: Array, mean: Array) -> Array:
    """Return f(x - mean); mean of shape (C,)."""
    return to_float32(double(x) - double(mean))


def normalise(x: Array, mean: Array, inverse_std: Array) -> Array:
    """Return f(f(x - mean) * inverse_std); statistics of shape (C,)."""
    return to_float32(double(centre(x, mean)) * double(inverse_std))


def scale_and_shift(x: Array, weight: Array, bias: Array) -> Array:
    """Return f(x * weight + b); weight and bias of shape (C,)."""
    return to_float32(double(x) * double(weight) + double(bias))


def batch_statistics(x: Array) -> tuple[Array, Array, Array]:
    """Return mean f(S x / M), variance f(S d^2 / M) and the unbiased one, S d^2 / (M - 1); (C,).

    M is the number of values in a channel, d = f(x - mean). A division is a product with the
    float64 reciprocal, because compilers make it one.
    """
    count = shards.count() * x.shape[0] * x.shape[1] * x.shape[2]
    mean = to_float32(total(x, (0, 1, 2)) * (1 / count))
    d = centre(x, mean)
    squares = total(d, (0, 1, 2), d)
    return mean, to_float32(squares * (1 / count)), to_float32(squares * (1 / (count - 1)))


def running_average(old: Array, new: Array, keep: float) -> Array:
    """Return f(keep * old + (1 - keep) * new), both factors float32."""
    return to_float32(double(old) * float32(keep) + double(new) * float32(1 - keep))


def float32(x: float) -> float:
    """Return the float32 value nearest to x: how constants enter the arithmetic."""
    return float(np.float32(x))


@partial(jax.custom_vjp, nondiff_argnums=(5,))
def batch_norm(x: Array, weight: Array, bias: Array, mean: Array, var: Array, eps: float) -> Array:
    """y = f(h * weight + bias), h = f(f(x - mean) * s), s = f(1 / f(sqrt(f(var + eps)))).

    Returns (n, H, W, C) normalised by the batch's own statistics of shape (C,).
    """
    return _batch_norm_forward(x, weight, bias, mean, var, eps)[0]


def _batch_norm_forward(x: Array, weight: Array, bias: Array, mean: Array, var: Array, eps: float):
    inverse_std = reciprocal_square_root(to_float32(double(var) + float32(eps)))
    h = normalise(x, mean, inverse_std)
    return scale_and_shift(h, weight, bias), (h, weight, inverse_std)


def _batch_norm_backward(eps: float, residuals, grad: Array):
    """db = f(S g), dw = f(S g h), dx = f(f(f(g - f(db / M)) - h * f(dw / M)) * f(w s)).

    M is the number of values in a channel. Mean and variance are functions of x here.
    """
    h, weight, inverse_std = residuals
    count = shards.count() * h.shape[0] * h.shape[1] * h.shape[2]
    sum_g = total(grad, (0, 1, 2))
    sum_gh = total(grad, (0, 1, 2), h)
    mean_g = to_float32(sum_g * (1 / count))
    mean_gh = double(to_float32(sum_gh * (1 / count)))
    centred = centre(grad, mean_g)
    # A product subtracted, exact in itself: contraction changes nothing.
    rest = to_float32(double(centred) - double(h) * mean_gh)
    factor = to_float32(double(weight) * double(inverse_std))
    dx = to_float32(double(rest) * double(factor))
    zeros = jnp.zeros_like(weight)
    return dx, to_float32(sum_gh), to_float32(sum_g), zeros, zeros


@jax.custom_vjp
def relu(x: Array) -> Array:
    """y = x where x > 0, else 0; NaN and infinities become NaN. The slope at 0 is 0."""
    return jnp.where(jnp.isfinite(x), jnp.where(x > 0, x, 0.0), jnp.nan).astype(x.dtype)


def _relu_backward(x: Array, grad: Array):
    """dx = g where x > 0, else 0."""
    return (jnp.where(x > 0, grad, 0.0).astype(grad.dtype),)


@jax.custom_vjp
def max_pool(x: Array) -> Array:
    """The largest of every 2x2 window; among equals the first in row-major order; NaN if any is.

    Returns (n, H / 2, W / 2, C) of (n, H, W, C).
    """
    return _max_pool_forward(x)[0]


def _max_pool_forward(x: Array):
    windows = [x[:, row::2, column::2] for row in (0, 1) for column in (0, 1)]
    best, choice = windows[0], jnp.zeros(windows[0].shape, jnp.int8)
    for index, window in enumerate(windows[1:], start=1):
        larger = (window > best) | jnp.isnan(window)
        best = jnp.where(larger, window, best)
        choice = jnp.where(larger, jnp.int8(index), choice)
    return best, choice


def _max_pool_backward(choice: Array, grad: Array):
    """The gradient goes to the element that was chosen."""
    n, height, width, channels = grad.shape
    parts = [jnp.where(choice == index, grad, 0.0).astype(grad.dtype) for index in range(4)]
    rows = jnp.stack(parts, 0).reshape(2, 2, n, height, width, channels)
    return (rows.transpose(2, 3, 0, 4, 1, 5).reshape(n, 2 * height, 2 * width, channels),)


@jax.custom_vjp
def dropout(x: Array, keep: Array) -> Array:
    """y = 2x where kept, else 0: the rate is 0.5, so the scale is a power of two.

    NaN and infinity are always kept.
    """
    return jnp.where(keep | ~jnp.isfinite(x), x * 2, 0.0).astype(x.dtype)


def _dropout_backward(keep: Array, grad: Array):
    """dx = 2g where kept, else 0."""
    return jnp.where(keep, grad * 2, 0.0).astype(grad.dtype), None


@jax.custom_vjp
def cross_entropy(logits: Array, labels: Array) -> Array:
    """The mean of log(sum of exp(z_j - max z)) - (z_label - max z), by integers.

    d = max z - z in units of 2**-40 (at most 34), E = exp(-d) in units of 2**-48, both int64.
    NaN if any logit is NaN or infinite.
    Returns f of the batch's mean loss in nats, shape (), of logits (n, classes).
    """
    return _cross_entropy_forward(logits, labels)[0]


def _cross_entropy_forward(logits: Array, labels: Array):
    wide = double(logits)
    distance = wide.max(1, keepdims=True) - wide
    distance = jnp.where(distance < -SMALLEST_ARGUMENT, distance, -SMALLEST_ARGUMENT)
    units = jnp.round(distance * 2.0**ARGUMENT_BITS).astype(jnp.int64)
    exponentials = exp(units)
    sums = exponentials.sum(1)
    chosen = jnp.take_along_axis(units, labels[:, None], 1)[:, 0]
    losses = (log(sums, logits.shape[1]) << (ARGUMENT_BITS - LOG_BITS)) + chosen
    count = shards.count() * len(logits)
    mean = double(shards.total(losses.sum())) * (1 / count) * 2.0**-ARGUMENT_BITS
    broken = shards.total((~jnp.isfinite(logits)).sum())
    loss = jnp.where(broken == 0, to_float32(mean), jnp.nan)
    return loss.astype(jnp.float32), (exponentials, sums, labels)


def _cross_entropy_backward(residuals, grad: Array):
    """dz = f((E / sum E - onehot) / n): the division is that of two integers, then one - 1."""
    exponentials, sums, labels = residuals
    chances = double(exponentials) / double(sums)[:, None]
    onehot = jax.nn.one_hot(labels, exponentials.shape[1], dtype=jnp.float64)
    count = shards.count() * len(labels)
    return to_float32((chances - onehot) * (1 / count)) * grad, None


def adam(
    grad: Array, m: Array, v: Array, step: Array, lr: float
) -> tuple[Array, tuple[Array, Array]]:
    """m = f(b1 m + (1 - b1) g), v = f(b2 v + (1 - b2) f(g g)), step = f(lr f(m' / d)).

    m' = f(m c1) and d = f(sqrt(f(v c2)) + eps), with the bias corrections c1 and c2 from the
    table of parity.exact.rules. All constants are float32.
    """
    (b1, b2) = ADAM_BETAS
    c1, c2 = (jnp.asarray(t)[jnp.minimum(step, len(t)) - 1] for t in _CORRECTIONS)
    m = running_average(m, grad, b1)
    v = running_average(v, _product(grad, grad), b2)
    root = square_root(_product(v, c2))
    denominator = to_float32(double(root) + float32(EPS))
    direction = to_float32(double(_product(m, c1)) / double(denominator))
    return _product(direction, np.float32(lr)), (m, v)


def rmsprop(grad: Array, v: Array, lr: float) -> tuple[Array, Array]:
    """v = f(a v + (1 - a) f(g g)), step = f(lr f(g / f(sqrt(v) + eps)))."""
    v = running_average(v, _product(grad, grad), RMSPROP_ALPHA)
    denominator = to_float32(double(square_root(v)) + float32(EPS))
    return _product(to_float32(double(grad) / double(denominator)), np.float32(lr)), v


def sgd(grad: Array, buffer: Array, lr: float) -> tuple[Array, Array]:
    """b = f(mu b + g), step = f(lr b)."""
    buffer = to_float32(double(buffer) * float32(SGD_MOMENTUM) + double(grad))
    return _product(buffer, np.float32(lr)), buffer


def descend(parameter: Array, step: Array) -> Array:
    """p = f(p - step)."""
    return to_float32(double(parameter) - double(step))


_CORRECTIONS = tuple(bias_corrections(beta) for beta in ADAM_BETAS)


def _product(x: Array, y: Any) -> Array:
    return to_float32(double(x) * y.astype(jnp.float64))


dense.defvjp(_dense_forward, _dense_backward)
conv.defvjp(_conv_forward, _conv_backward)
batch_norm.defvjp(_batch_norm_forward, _batch_norm_backward)
relu.defvjp(lambda x: (relu(x), x), _relu_backward)
max_pool.defvjp(_max_pool_forward, _max_pool_backward)
dropout.defvjp(lambda x, keep: (dropout(x, keep), keep), _dropout_backward)
cross_entropy.defvjp(_cross_entropy_forward, _cross_entropy_backward)
