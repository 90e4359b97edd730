"""The exact operations in PyTorch: float32 in, float32 out, the same bits from every engine.

Each operation is a mathematical definition, given in its docstring, of which nothing depends on the
order of a sum, on fused multiply-add or on a library's exp. Below, f(...) stands for `to_float32`,
S(...) for the exact sum `total`, and a * b + c for the float64 value of an exact product of two
float32 plus a third, rounded once. The proofs are in parity.exact.
"""

# Functions name the gradients that they take, where the base class takes any.
# pyright: reportIncompatibleMethodOverride=false

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from parity.exact.rules import SMALLEST_NORMAL, bias_corrections, operand_bits, term_bits
from parity.exact.transcendental import (
    ARGUMENT_BITS,
    LOG_BITS,
    SMALLEST_ARGUMENT,
    exp,
    log,
)
from parity.optimizers import ADAM_BETAS, EPS, RMSPROP_ALPHA, SGD_MOMENTUM
from torch_impl import shards
from torch_impl.engines import Engine


def to_float32(x: Tensor) -> Tensor:
    """Return float64 values rounded to float32, those below 2**-126 flushed to +0."""
    # One pass, where torch.where takes five times as long; it drops magnitudes up to its limit.
    return F.hardshrink(x, _LARGEST_FLUSHED).to(torch.float32)


_LARGEST_FLUSHED = math.nextafter(SMALLEST_NORMAL, 0.0)


def power_of_two(exponent: Tensor) -> Tensor:
    """Return 2**exponent, float64, of an integer scalar from -1022 to 1023, made of its bits."""
    return ((exponent.long() + 1023) << 52).view(torch.float64)


class Scale(NamedTuple):
    """How x is quantised: q = round_half_even(x * 2**(bits - exponent)), so that |q| <= 2**bits."""

    exponent: Tensor
    """Of max|x|, as frexp gives it; 0 for a tensor of zeros."""
    bits: int
    factor: Tensor
    """2**(bits - exponent), float64; NaN where the tensor is not finite."""


def quantise(x: Tensor, scale: Scale) -> Tensor:
    """Return the integers q, as float64, that stand for q * 2**(exponent - bits)."""
    return torch.round(x.double() * scale.factor)


def scale_of(x: Tensor, bits: int) -> Scale:
    """Return the scale of a tensor: one power of two for all of it.

    A tensor that holds NaN or infinity has none. Subnormal numbers must not occur.
    """
    return _scale([_largest(x[part]) for part in blocks(x)], bits)


_INTEGERS = {torch.float32: torch.int32, torch.float64: torch.int64}
_FIELDS = {torch.int32: (23, 126), torch.int64: (52, 1022)}
"""Of the floating-point type of that size: digits after the point, bias of frexp."""


def _largest(x: Tensor) -> Tensor:
    """Return the bits of max|x|: as integers NaN and infinity exceed every number."""
    integer = _INTEGERS[x.dtype]
    return (x.view(integer) & torch.iinfo(integer).max).amax()


def _scale(of_blocks: list[Tensor], bits: int) -> Scale:
    """Return the scale of the tensor whose blocks have these largest bits."""
    largest = shards.largest(torch.stack(of_blocks).amax())
    digits, bias = _FIELDS[largest.dtype]
    field = largest >> digits
    exponent = torch.where(largest == 0, 0, field - bias)
    finite = field <= 2 * bias + 2
    return Scale(exponent, bits, torch.where(finite, power_of_two(bits - exponent), torch.nan))


BLOCK_VALUES = 2**16
"""Values of a block: half a megabyte of float64, which the caches hold."""


def blocks(x: Tensor) -> Iterator[slice]:
    """Yield slices of the first axis that the caches of a CPU hold as float64; elsewhere, all of x.

    So work goes through memory once, not once an operation. No bit depends on it.
    """
    on_cpu = x.device.type == "cpu"
    step = max(1, BLOCK_VALUES * len(x) // max(1, x.numel())) if on_cpu else max(1, len(x))
    for start in range(0, len(x), step):
        yield slice(start, start + step)


def dot(engine: Engine, a: Tensor, b: Tensor, like: tuple[Scale, Scale]) -> Tensor:
    """Return f(sum over k of a_ik b_kj, scaled): an exact integer matrix product, rounded once.

    Args:
        engine: Computes the product.
        a: Its operands. Shape (digits, i, k).
        b: Its operands. Shape (digits, k, j).
        like: How both were quantised, which scales the product.
    """
    return to_float32(engine.product(a, b).mul_(_unit(*like)))


def _unit(a: Scale, b: Scale) -> Tensor:
    """Return what 1 stands for in a product; NaN where a tensor is not finite: digits lose it."""
    unit = power_of_two(a.exponent + b.exponent - (a.bits + b.bits))
    return torch.where((a.factor + b.factor).isnan(), torch.nan, unit)


def total(x: Tensor, dims: tuple[int, ...], factor: Tensor | None = None) -> Tensor:
    """Return the sum S over `dims`, float64: the terms quantised, then added without rounding.

    Args:
        x: The terms. The first axis is among `dims`.
        dims: Axes to sum over.
        factor: If given, of x's shape: the terms are the products with it, exact in float64.
    """

    def terms(part: slice) -> Tensor:
        return x[part] if factor is None else x[part].double() * factor[part].double()

    bits = term_bits(shards.count() * math.prod(x.shape[dim] for dim in dims))
    scale = _scale([_largest(terms(part)) for part in blocks(x)], bits)
    sums = [quantise(terms(part), scale).sum(dims) for part in blocks(x)]
    return shards.total(torch.stack(sums).sum(0)) * power_of_two(scale.exponent - bits)


class Dense(torch.autograd.Function):
    """y = f(f(x W^T) + b)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, engine: Engine) -> Tensor:
        """Return (n, outputs) of x (n, inputs), weight (outputs, inputs), bias (outputs,)."""
        bits = operand_bits(max(*weight.shape, shards.count() * len(x)))
        ctx.save_for_backward(x, weight)
        ctx.engine = engine
        ctx.scales = sx, sw = scale_of(x, bits), scale_of(weight, bits)
        a, w = engine.operand(quantise(x, sx)), engine.operand(quantise(weight, sw))
        product = dot(engine, a, w.transpose(1, 2), (sx, sw))
        return to_float32(product.double() + bias.double())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """dx = f(g W), dW = f(g^T x), db = f(S g)."""
        (x, weight), (sx, sw), engine = ctx.saved_tensors, ctx.scales, ctx.engine
        sg = scale_of(grad, sx.bits)
        g = engine.operand(quantise(grad, sg))
        dx = dot(engine, g, engine.operand(quantise(weight, sw)), (sg, sw))
        sums = engine.product(g.transpose(1, 2), engine.operand(quantise(x, sx)))
        dw = to_float32(shards.total(sums) * _unit(sg, sx))
        return dx, dw, to_float32(total(grad, (0,))), None


def patches(x: Tensor) -> Tensor:
    """Return the 3x3 neighbourhoods, zeros outside: (digits, n, C, H, W) as (.., C*9, n*H*W).

    A view of the padded images, copied once: five times faster than unfold, and for any type.
    """
    digits, n, channels, height, width = x.shape
    padded = F.pad(x, (1, 1, 1, 1))
    d, image, channel, row, column = padded.stride()
    shape = (digits, channels, 3, 3, n, height, width)
    windows = padded.as_strided(shape, (d, channel, row, column, image, row, column))
    return windows.reshape(digits, channels * 9, n * height * width)


class Conv(torch.autograd.Function):
    """y = f(f(patches(x) W^T) + b): a 3x3 convolution with padding 1."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, engine: Engine) -> Tensor:
        """Return (n, O, H, W) of x (n, I, H, W), weight (O, I, 3, 3), bias (O,)."""
        n, _, height, width = x.shape
        outputs, inputs = weight.shape[:2]
        bits = operand_bits(max(9 * inputs, 9 * outputs, shards.count() * n * height * width))
        ctx.save_for_backward(x, weight)
        ctx.engine = engine
        ctx.scales = sx, sw = scale_of(x, bits), scale_of(weight, bits)
        kernels = engine.operand(quantise(weight, sw)).flatten(2)
        shift = bias.double()[:, None]
        y = x.new_empty(n, outputs, height, width)
        for part in blocks(y):
            columns = patches(engine.operand(quantise(x[part], sx)))
            product = dot(engine, kernels, columns, (sx, sw))
            y[part] = _images(to_float32(product.double() + shift), y[part])
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """dx = f(patches(g) W'), W' the flipped kernels; dW = f(g^T patches(x)); db = f(S g)."""
        (x, weight), (sx, sw), engine = ctx.saved_tensors, ctx.scales, ctx.engine
        sg = scale_of(grad, sx.bits)
        flipped = engine.operand(quantise(weight, sw).flip(2, 3).transpose(0, 1)).flatten(2)
        dx = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        sums = weight.new_zeros(len(weight), weight[0].numel(), dtype=torch.float64)
        for part in blocks(grad):
            g = engine.operand(quantise(grad[part], sg))
            if dx is not None:
                dx[part] = _images(dot(engine, flipped, patches(g), (sg, sw)), dx[part])
            columns = patches(engine.operand(quantise(x[part], sx)))
            # Integers again: adding the products of the images keeps every bit.
            sums += engine.product(g.transpose(1, 2).flatten(2), columns.transpose(1, 2))
        dw = to_float32(shards.total(sums) * _unit(sg, sx)).view(weight.shape)
        return dx, dw, to_float32(total(grad, (0, 2, 3))), None


def _images(columns: Tensor, like: Tensor) -> Tensor:
    """Return (C, n * H * W) as (n, C, H, W)."""
    n, channels, height, width = like.shape
    return columns.view(channels, n, height, width).transpose(0, 1)


def reciprocal_square_root(x: Tensor) -> Tensor:
    """Return f(1 / f(sqrt(x))), both correctly rounded; x is float32, positive."""
    return to_float32(1.0 / square_root(x).double())


def square_root(x: Tensor) -> Tensor:
    """Return the correctly rounded root of float32 x >= 0; NaN of NaN and of infinity.

    The rounded float64 root may be one float32 off its place: the exact squares of the two
    midpoints around it decide. Infinity ends as NaN, because a division by it would hide it.
    """
    wide = x.double()
    root = to_float32(wide.sqrt())
    above = torch.nextafter(root, torch.full_like(root, torch.inf))
    below = torch.nextafter(root, torch.zeros_like(root))
    # A midpoint has 25 bits, so its square is exact in float64.
    upper = (root.double() + above.double()) * 0.5
    lower = (root.double() + below.double()) * 0.5
    root = torch.where(upper * upper < wide, above, root)
    root = torch.where(lower * lower > wide, below, root)
    return torch.where(x < torch.inf, root, torch.nan)


def centre(x: Tensor, mean: Tensor) -> Tensor:
    """Return f(x - mean); mean of shape (C, 1, 1)."""
    return to_float32(x.double() - mean.double())


def normalise(x: Tensor, mean: Tensor, inverse_std: Tensor) -> Tensor:
    """Return f(f(x - mean) * inverse_std); statistics of shape (C, 1, 1)."""
    return to_float32(centre(x, mean).double() * inverse_std.double())


def scale_and_shift(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return f(x * weight + b); weight and bias of shape (C, 1, 1)."""
    return to_float32(x.double() * weight.double() + bias.double())


def batch_statistics(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean f(S x / M), variance f(S d^2 / M) and the unbiased one, S d^2 / (M - 1); (C,).

    M is the number of values in a channel, d = f(x - mean). A division is a product with the
    float64 reciprocal, because compilers make it one.
    """
    count = shards.count() * x.shape[0] * x.shape[2] * x.shape[3]
    mean = to_float32(total(x, (0, 2, 3)) * (1 / count))
    d = torch.empty_like(x)
    for part in blocks(x):
        d[part] = centre(x[part], mean[:, None, None])
    squares = total(d, (0, 2, 3), d)
    return mean, to_float32(squares * (1 / count)), to_float32(squares * (1 / (count - 1)))


def running_average(old: Tensor, new: Tensor, keep: float) -> Tensor:
    """Return f(keep * old + (1 - keep) * new), both factors float32."""
    return to_float32(old.double() * float32(keep) + new.double() * float32(1 - keep))


def float32(x: float) -> float:
    """Return the float32 value nearest to x: how constants enter the arithmetic."""
    return float(torch.tensor(x, dtype=torch.float32))


class BatchNorm(torch.autograd.Function):
    """y = f(h * weight + bias), h = f(f(x - mean) * s), s = f(1 / f(sqrt(f(var + eps))))."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, eps: float
    ) -> Tensor:
        """Return (n, C, H, W) normalised by the batch's own statistics of shape (C,)."""
        inverse_std = reciprocal_square_root(to_float32(var.double() + float32(eps)))
        m, s, w, b = (t[:, None, None] for t in (mean, inverse_std, weight, bias))
        h, y = torch.empty_like(x), torch.empty_like(x)
        for part in blocks(x):
            h[part] = normalise(x[part], m, s)
            y[part] = scale_and_shift(h[part], w, b)
        ctx.save_for_backward(h, weight, inverse_std)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """db = f(S g), dw = f(S g h), dx = f(f(f(g - f(db / M)) - h * f(dw / M)) * f(w s)).

        M is the number of values in a channel. Mean and variance are functions of x here.
        """
        h, weight, inverse_std = ctx.saved_tensors
        count = shards.count() * h.shape[0] * h.shape[2] * h.shape[3]
        sum_g = total(grad, (0, 2, 3))
        sum_gh = total(grad, (0, 2, 3), h)
        mean_g = to_float32(sum_g * (1 / count))[:, None, None]
        mean_gh = to_float32(sum_gh * (1 / count)).double()[:, None, None]
        factor = to_float32(weight.double() * inverse_std.double()).double()[:, None, None]
        dx = torch.empty_like(grad)
        for part in blocks(grad):
            centred = centre(grad[part], mean_g)
            # A product subtracted, exact in itself: contraction changes nothing.
            rest = to_float32(centred.double() - h[part].double() * mean_gh)
            dx[part] = to_float32(rest.double() * factor)
        return dx, to_float32(sum_gh), to_float32(sum_g), None, None, None


class Relu(torch.autograd.Function):
    """y = x where x > 0, else 0; NaN and infinities become NaN. The slope at 0 is 0."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Return x without its negative values."""
        ctx.save_for_backward(x)
        return torch.relu(x).add_(x * 0).add_(0.0)  # -0 becomes +0

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """dx = g where x > 0, else 0."""
        (x,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(grad, x, 0)


class MaxPool(torch.autograd.Function):
    """The largest of every 2x2 window; among equals the first in row-major order."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Return (n, C, H / 2, W / 2) of (n, C, H, W). PyTorch's own chooses so.

        On CPUs it is vectorised over channels alone: half the time, the two copies included.
        """
        rows = x.contiguous(memory_format=torch.channels_last)
        y, choice = F.max_pool2d(rows, 2, return_indices=True)
        ctx.save_for_backward(choice)
        ctx.shape = x.shape
        return y.contiguous()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """The gradient goes to the element that was chosen."""
        (choice,) = ctx.saved_tensors
        dx = grad.new_zeros(ctx.shape)
        dx.flatten(2).scatter_(2, choice.flatten(2), grad.flatten(2))
        return dx


class Dropout(torch.autograd.Function):
    """y = 2x where kept, else 0: the rate is 0.5, so the scale is a power of two.

    NaN and infinity are always kept.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, keep: Tensor) -> Tensor:
        """Return x (n, features) with the mask `keep` applied."""
        ctx.save_for_backward(keep)
        return torch.where(keep | ~x.isfinite(), x * 2, 0.0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """dx = 2g where kept, else 0."""
        (keep,) = ctx.saved_tensors
        return torch.where(keep, grad * 2, 0.0), None


class CrossEntropy(torch.autograd.Function):
    """The mean of log(sum of exp(z_j - max z)) - (z_label - max z), by integers.

    d = max z - z in units of 2**-40 (at most 34), E = exp(-d) in units of 2**-48, both int64.
    NaN if any logit is NaN or infinite.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        """Return f of the batch's mean loss in nats, shape (), of logits (n, classes)."""
        wide = logits.double()
        distance = wide.amax(1, keepdim=True) - wide
        distance = torch.where(distance < -SMALLEST_ARGUMENT, distance, -SMALLEST_ARGUMENT)
        units = torch.round(distance * 2.0**ARGUMENT_BITS).to(torch.int64)
        exponentials = exp(units)
        sums = exponentials.sum(1)
        ctx.save_for_backward(exponentials, sums, labels)
        chosen = units.gather(1, labels[:, None])[:, 0]
        losses = (log(sums, logits.shape[1]) << (ARGUMENT_BITS - LOG_BITS)) + chosen
        count = shards.count() * len(logits)
        mean = shards.total(losses.sum()).double() * (1 / count) * 2.0**-ARGUMENT_BITS
        broken = shards.total((~logits.isfinite()).sum())
        return torch.where(broken == 0, to_float32(mean), torch.nan)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """dz = f((E / sum E - onehot) / n): the division is that of two integers, then one - 1."""
        exponentials, sums, labels = ctx.saved_tensors
        chances = exponentials.double() / sums.double()[:, None]
        onehot = F.one_hot(labels, exponentials.shape[1])
        count = shards.count() * len(labels)
        return to_float32((chances - onehot) * (1 / count)) * grad, None


def adam(parameter: Tensor, grad: Tensor, state: dict[str, Tensor], lr: float) -> None:
    """m = f(b1 m + (1 - b1) g), v = f(b2 v + (1 - b2) f(g g)), p = f(p - f(lr f(m' / d))).

    m' = f(m c1) and d = f(sqrt(f(v c2)) + eps), with the bias corrections c1 and c2 from the
    table of parity.exact.rules. All constants are float32.
    """
    step = int(state["step"])
    (b1, b2), (c1, c2) = ADAM_BETAS, (table[min(step, len(table)) - 1] for table in _CORRECTIONS)
    m, v = state["exp_avg"], state["exp_avg_sq"]
    m.copy_(running_average(m, grad, b1))
    v.copy_(running_average(v, _product(grad, grad), b2))
    root = square_root(_product(v, float(c2)))
    denominator = to_float32(root.double() + float32(EPS))
    _descend(parameter, to_float32(_product(m, float(c1)).double() / denominator.double()), lr)


def rmsprop(parameter: Tensor, grad: Tensor, state: dict[str, Tensor], lr: float) -> None:
    """v = f(a v + (1 - a) f(g g)), p = f(p - f(lr f(g / f(sqrt(v) + eps))))."""
    v = state["square_avg"]
    v.copy_(running_average(v, _product(grad, grad), RMSPROP_ALPHA))
    denominator = to_float32(square_root(v).double() + float32(EPS))
    _descend(parameter, to_float32(grad.double() / denominator.double()), lr)


def sgd(parameter: Tensor, grad: Tensor, state: dict[str, Tensor], lr: float) -> None:
    """b = f(mu b + g), p = f(p - f(lr b))."""
    buffer = state["momentum_buffer"]
    buffer.copy_(to_float32(buffer.double() * float32(SGD_MOMENTUM) + grad.double()))
    _descend(parameter, buffer, lr)


_CORRECTIONS = tuple(bias_corrections(beta) for beta in ADAM_BETAS)


def _product(x: Tensor, y: Tensor | float) -> Tensor:
    return to_float32(x.double() * (y.double() if isinstance(y, Tensor) else y))


def _descend(parameter: Tensor, direction: Tensor, lr: float) -> None:
    step = _product(direction, float32(lr))
    parameter.copy_(to_float32(parameter.double() - step.double()))
