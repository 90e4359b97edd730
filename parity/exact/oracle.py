"""The exact operations in NumPy and whole numbers: what both frameworks must equal in every bit.

Written from the definitions alone and slowly: sums are sums of int64 over offsets, roots and
reciprocals come from Python's integers, each convolution from its formula. Tensors are finite
float32 without subnormal numbers, images (n, C, H, W). f(...) stands for `to_float32`, S(...) for
`total`. A gradient function takes what its operation took, and g, the gradient of its result.
"""

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from parity.exact.rules import SMALLEST_NORMAL, bias_corrections, operand_bits, term_bits
from parity.exact.transcendental import ARGUMENT_BITS, LOG_BITS, SMALLEST_ARGUMENT, exp, log
from parity.optimizers import ADAM_BETAS, EPS, RMSPROP_ALPHA, SGD_MOMENTUM

Arrays = tuple[np.ndarray, ...]


def double(x: np.ndarray | np.floating) -> np.ndarray:
    """Return x as float64, in which the product of two float32 is exact."""
    return np.asarray(x, np.float64)


def to_float32(x: np.ndarray) -> np.ndarray:
    """Return f(x): float64 rounded to the nearest float32, ties to even; +0 where |x| < 2**-126."""
    with np.errstate(over="ignore", under="ignore"):
        return np.where(np.abs(x) < SMALLEST_NORMAL, 0.0, x).astype(np.float32)


def nearest_float32(value: Fraction) -> np.float32:
    """Return f of a positive rational number."""
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    exponent += value >= Fraction(2) ** exponent  # 2**(exponent - 1) <= value < 2**exponent
    if value < Fraction(SMALLEST_NORMAL):
        return np.float32(0)
    significand = round(value * Fraction(2) ** (24 - exponent))  # half to even
    rounded = significand * Fraction(2) ** (exponent - 24)
    return np.float32(rounded if rounded < 2**128 else math.inf)


class Quantised(NamedTuple):
    """q * 2**(exponent - bits)."""

    q: np.ndarray
    """int64, at most 2**bits in size."""
    exponent: int
    bits: int


def quantise(x: np.ndarray, bits: int) -> Quantised:
    """Return q = round_half_even(x * 2**(bits - e)), e being frexp's exponent of max|x|, or 0."""
    wide = double(x)
    exponent = int(np.frexp(np.abs(wide).max())[1])
    return Quantised(np.rint(np.ldexp(wide, bits - exponent)).astype(np.int64), exponent, bits)


def scaled(sums: np.ndarray, *factors: Quantised) -> np.ndarray:
    """Return integer sums of products of q's as the float64 numbers that they stand for."""
    exponent = sum(factor.exponent - factor.bits for factor in factors)
    return np.ldexp(double(sums), exponent)


def dot(a: Quantised, b: Quantised) -> np.ndarray:
    """Return f(sum_k a_ik b_kj)."""
    return to_float32(scaled(a.q @ b.q, a, b))


def total(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Return S(x): the sum of terms of 53 - ceil(log2 n) - 1 bits, float64; n is their number."""
    terms = quantise(x, term_bits(math.prod(x.shape[axis] for axis in axes)))
    return scaled(terms.q.sum(axes), terms)


def dense(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Return y_no = f(f(sum_i x_ni w_oi) + b_o)."""
    qx, qw = (quantise(array, _dense_bits(x, weight)) for array in (x, weight))
    return _sum(dot(qx, qw._replace(q=qw.q.T)), bias)


def dense_gradients(x: np.ndarray, weight: np.ndarray, g: np.ndarray) -> Arrays:
    """Return dx_ni = f(sum_o g_no w_oi), dw_oi = f(sum_n g_no x_ni) and db = f(S(g))."""
    qx, qw, qg = (quantise(array, _dense_bits(x, weight)) for array in (x, weight, g))
    return dot(qg, qw), dot(qg._replace(q=qg.q.T), qx), to_float32(total(g, (0,)))


def _dense_bits(x: np.ndarray, weight: np.ndarray) -> int:
    return operand_bits(max(len(x), *weight.shape))


def conv(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Return y_nohw = f(f(sum_irs x_ni(h+r-1)(w+s-1) w_oirs) + b_o); x is 0 outside."""
    qx, qw = (quantise(array, _conv_bits(x, weight)) for array in (x, weight))
    sums = sum(np.einsum("nihw,oi->nohw", _at(qx.q, r, s), qw.q[:, :, r, s]) for r, s in _OFFSETS)
    return _sum(to_float32(scaled(np.asarray(sums), qx, qw)), bias[:, None, None])


def conv_gradients(x: np.ndarray, weight: np.ndarray, g: np.ndarray) -> Arrays:
    """Return dx and dw, the f of the sums that `conv`'s derivative is, and db = f(S(g)).

    x_ni(h+r-1)(w+s-1) receives g_nohw w_oirs, and w_oirs receives g_nohw x_ni(h+r-1)(w+s-1).
    """
    qx, qw, qg = (quantise(array, _conv_bits(x, weight)) for array in (x, weight, g))
    height, width = x.shape[2:]
    dx = np.pad(np.zeros_like(qx.q), _BORDER)
    dw = np.zeros_like(qw.q)
    for r, s in _OFFSETS:
        shares = np.einsum("nohw,oi->nihw", qg.q, qw.q[:, :, r, s])
        dx[:, :, r : r + height, s : s + width] += shares
        dw[:, :, r, s] = np.tensordot(qg.q, _at(qx.q, r, s), ((0, 2, 3), (0, 2, 3)))
    dx = to_float32(scaled(dx[:, :, 1:-1, 1:-1], qg, qw))
    return dx, to_float32(scaled(dw, qg, qx)), to_float32(total(g, (0, 2, 3)))


_OFFSETS = [(r, s) for r in range(3) for s in range(3)]
_BORDER = ((0, 0), (0, 0), (1, 1), (1, 1))


def _at(x: np.ndarray, r: int, s: int) -> np.ndarray:
    """Return x_ni(h+r-1)(w+s-1) for all n, i, h, w."""
    height, width = x.shape[2:]
    return np.pad(x, _BORDER)[:, :, r : r + height, s : s + width]


def _conv_bits(x: np.ndarray, weight: np.ndarray) -> int:
    (n, inputs, height, width), outputs = x.shape, len(weight)
    return operand_bits(max(9 * inputs, 9 * outputs, n * height * width))


def square_root(x: np.ndarray) -> np.ndarray:
    """Return the float32 nearest to the root of x >= 0."""

    def root(value: float) -> np.float32:
        numerator, denominator = value.as_integer_ratio()
        square = numerator * denominator << 64
        whole = math.isqrt(square)  # root * denominator * 2**32, rounded down
        odd = whole * whole != square  # one more bit says that something follows
        return nearest_float32(Fraction(2 * whole + odd, denominator << 33))

    return _each(root, x)


def reciprocal(x: np.ndarray) -> np.ndarray:
    """Return the float32 nearest to 1 / x, x > 0."""
    return _each(lambda value: nearest_float32(1 / Fraction(value)), x)


def _each(function, x: np.ndarray) -> np.ndarray:
    return np.array([function(float(v)) for v in x.flat], np.float32).reshape(x.shape)


def batch_statistics(x: np.ndarray) -> Arrays:
    """Return f(S(x) / M), f(S(d^2) / M) and f(S(d^2) / (M - 1)) of each channel's M values.

    d = f(x - mean); a division is a product with the float64 reciprocal.
    """
    count = x[:, 0].size
    mean = to_float32(total(x, (0, 2, 3)) * (1 / count))
    centred = double(_sum(x, -_channels(mean)))
    squares = total(centred * centred, (0, 2, 3))
    return mean, to_float32(squares * (1 / count)), to_float32(squares * (1 / (count - 1)))


def running_average(old: np.ndarray, new: np.ndarray, keep: float) -> np.ndarray:
    """Return f(keep * old + (1 - keep) * new), both factors float32."""
    kept, rest = np.float32(keep), np.float32(1 - keep)
    return to_float32(double(old) * double(kept) + double(new) * double(rest))


def batch_norm(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray,
    mean: np.ndarray,
    var: np.ndarray,
    eps: float,
) -> np.ndarray:
    """Return y = f(h w + b), where h = f(f(x - mean) s) and s = f(1 / f(sqrt(f(var + eps))))."""
    h = double(_normalised(x, mean, var, eps)[0])
    return to_float32(h * _channels(weight) + _channels(bias))


def batch_norm_gradients(
    x: np.ndarray, weight: np.ndarray, g: np.ndarray, mean: np.ndarray, var: np.ndarray, eps: float
) -> Arrays:
    """Return dx = f(f(f(g - f(db / M)) - h f(dw / M)) f(w s)), dw = f(S(g h)), db = f(S(g))."""
    h, s = _normalised(x, mean, var, eps)
    count = x[:, 0].size
    sum_g, sum_gh = total(g, (0, 2, 3)), total(double(g) * double(h), (0, 2, 3))
    mean_g, mean_gh = to_float32(sum_g * (1 / count)), to_float32(sum_gh * (1 / count))
    centred = _sum(g, -_channels(mean_g))
    rest = to_float32(double(centred) - double(h) * _channels(mean_gh))
    return _product(rest, _channels(_product(weight, s))), to_float32(sum_gh), to_float32(sum_g)


def _normalised(x: np.ndarray, mean: np.ndarray, var: np.ndarray, eps: float) -> Arrays:
    s = reciprocal(square_root(_sum(var, np.float32(eps))))
    return _product(_sum(x, -_channels(mean)), _channels(s)), s


def _channels(values: np.ndarray) -> np.ndarray:
    return double(values[:, None, None])


def _sum(a: np.ndarray, b: np.ndarray | np.floating) -> np.ndarray:
    return to_float32(double(a) + double(b))


def _product(a: np.ndarray, b: np.ndarray | np.floating) -> np.ndarray:
    return to_float32(double(a) * double(b))


def relu(x: np.ndarray) -> np.ndarray:
    """Return y = x where x > 0, else +0."""
    return np.where(x > 0, x, np.float32(0))


def relu_gradient(x: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Return dx = g where x > 0, else +0."""
    return np.where(x > 0, g, np.float32(0))


def max_pool(x: np.ndarray) -> np.ndarray:
    """Return each 2x2 window's largest element, of equals the first in row-major order."""
    windows = _windows(x)
    return np.take_along_axis(windows, _first_largest(windows), -1)[..., 0]


def max_pool_gradient(x: np.ndarray, g: np.ndarray) -> np.ndarray:
    """The element that `max_pool` returned receives g, the others +0."""
    windows = _windows(x)
    dx = np.zeros_like(windows)
    np.put_along_axis(dx, _first_largest(windows), g[..., None], -1)
    n, channels, height, width, _ = dx.shape
    dx = dx.reshape(n, channels, height, width, 2, 2).transpose(0, 1, 2, 4, 3, 5)
    return dx.reshape(x.shape)


def _windows(x: np.ndarray) -> np.ndarray:
    n, channels, height, width = x.shape
    split = x.reshape(n, channels, height // 2, 2, width // 2, 2).transpose(0, 1, 2, 4, 3, 5)
    return split.reshape(n, channels, height // 2, width // 2, 4)


def _first_largest(windows: np.ndarray) -> np.ndarray:
    return (windows == windows.max(-1, keepdims=True)).argmax(-1)[..., None]


def dropout(x: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """Return y = 2x where kept, else +0: also the gradient's formula."""
    with np.errstate(over="ignore"):
        return np.where(keep, x * np.float32(2), np.float32(0))


class _Softmax(NamedTuple):
    distances: list[list[int]]
    exponentials: list[list[int]]


def _softmax(logits: np.ndarray) -> _Softmax:
    """Return d = max z - z in units of 2**-40, at most 34, and exp(-d) in units of 2**-48."""
    wide = double(logits)
    nats = np.minimum(wide.max(1, keepdims=True) - wide, -SMALLEST_ARGUMENT)
    distances = [[round(d * 2**ARGUMENT_BITS) for d in row] for row in nats.tolist()]
    return _Softmax(distances, [[exp(d) for d in row] for row in distances])


def cross_entropy(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return f of the mean over the batch of log(sum over j of exp(-d_j)) + d_label.

    Logarithms and distances are added as integers, in units of 2**-40; then the float64 value of
    their sum is multiplied by the float64 value of 1 / n.
    """
    d, e = _softmax(logits)
    shift = ARGUMENT_BITS - LOG_BITS
    losses = [
        (log(sum(exponentials), logits.shape[1]) << shift) + distances[label]
        for distances, exponentials, label in zip(d, e, labels, strict=True)
    ]
    return to_float32(np.array(float(sum(losses)) * (1 / len(losses)) / 2**ARGUMENT_BITS))


def cross_entropy_gradient(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return dz_nj = f((E_nj / sum_k E_nk - [j is the label]) * (1 / n)) in float64 steps."""
    n = len(labels)
    chances = [[e / sum(row) for e in row] for row in _softmax(logits).exponentials]
    onehot = np.arange(logits.shape[1]) == labels[:, None]
    return to_float32((np.array(chances) - onehot) * (1 / n))


def adam(
    parameter: np.ndarray, g: np.ndarray, m: np.ndarray, v: np.ndarray, step: int, lr: float
) -> Arrays:
    """Return the parameter, m and v after update number `step`, from 1.

    m = f(b1 m + (1 - b1) g), v = f(b2 v + (1 - b2) f(g g)),
    p = f(p - f(lr f(f(m c1) / f(sqrt(f(v c2)) + eps)))), with c1, c2 from `bias_corrections`.
    """
    c1, c2 = (table[min(step, len(table)) - 1] for table in map(bias_corrections, ADAM_BETAS))
    m = running_average(m, g, ADAM_BETAS[0])
    v = running_average(v, _product(g, g), ADAM_BETAS[1])
    denominator = _sum(square_root(_product(v, c2)), np.float32(EPS))
    direction = to_float32(double(_product(m, c1)) / double(denominator))
    return _descend(parameter, direction, lr), m, v


def rmsprop(parameter: np.ndarray, g: np.ndarray, v: np.ndarray, lr: float) -> Arrays:
    """Return v = f(a v + (1 - a) f(g g)), p = f(p - f(lr f(g / f(sqrt(v) + eps))))."""
    v = running_average(v, _product(g, g), RMSPROP_ALPHA)
    denominator = _sum(square_root(v), np.float32(EPS))
    direction = to_float32(double(g) / double(denominator))
    return _descend(parameter, direction, lr), v


def sgd(parameter: np.ndarray, g: np.ndarray, buffer: np.ndarray, lr: float) -> Arrays:
    """Return b = f(mu b + g), p = f(p - f(lr b))."""
    momentum = double(np.float32(SGD_MOMENTUM))
    buffer = to_float32(double(buffer) * momentum + double(g))
    return _descend(parameter, buffer, lr), buffer


def _descend(parameter: np.ndarray, direction: np.ndarray, lr: float) -> np.ndarray:
    return _sum(parameter, -double(_product(direction, np.float32(lr))))
