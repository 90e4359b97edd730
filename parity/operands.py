"""Operands of products: rounding them to fewer mantissa bits, and seeing how many a device keeps.

What a framework says of its precision is a permission; a device may not use it. So the operands
1 + 2**-b are multiplied by 1, alone in a sum of zeros: a product keeps b bits if they come out.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

FLOAT32_BITS = 23


def round_operand(x: np.ndarray, bits: int) -> np.ndarray:
    """Return float32 values rounded to `bits` explicit mantissa bits, ties to even.

    Below 2**-126, where the exponent no longer moves, the spacing is that of 2**-126. What exceeds
    the largest such number becomes infinite; NaN and infinity stay what they are.
    """
    drop = FLOAT32_BITS - bits
    integer = x.view(np.int32)
    odd = (integer >> drop) & 1
    # Sign and magnitude: a carry out of the mantissa goes into the exponent, as it should.
    rounded = (integer + ((1 << (drop - 1)) - 1 + odd)) & ~((1 << drop) - 1)
    return np.where(np.isnan(x), x, rounded.astype(np.int32).view(np.float32))


class Products(NamedTuple):
    """What a linear layer or a convolution makes, without bias. Shapes are PyTorch's."""

    output: np.ndarray
    input_gradient: np.ndarray
    weight_gradient: np.ndarray


LINEAR = ((128, 2048), (256, 2048), (128, 256))
CONV = ((64, 32, 16, 16), (64, 32, 3, 3), (64, 64, 16, 16))
"""Shapes of input, weight and output: SimpleCNN's fc1 and conv2, because libraries choose kernels
by shape."""

MAX_BITS = 52
"""Of float64."""


def product_bits(
    layers: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], Products]], dtype: str
) -> dict[str, int]:
    """Return how many mantissa bits the products of layers keep of an operand, by product.

    Args:
        layers: "linear" and "conv": of input, weight and the output's gradient. All have the type
            that the run's weights have.
        dtype: float32 or float64.
    """
    found: dict[str, int] = {}
    for name, function in layers.items():
        x_shape, w_shape, y_shape = LINEAR if name == "linear" else CONV
        # The middle of an image, and of a kernel; linear layers have neither.
        pixel = (8, 8) if name == "conv" else ()
        tap = (1, 1) if name == "conv" else ()
        steps = (1 + 2.0 ** -np.arange(1, MAX_BITS + 1)).astype(dtype)
        x, w, g = (np.zeros(shape, dtype) for shape in (x_shape, w_shape, y_shape))
        rows = np.arange(MAX_BITS)
        x[(rows, 0, *pixel)] = steps
        w[(0, 0, *tap)] = 1
        g[(rows, 0, *pixel)] = steps
        forward = function(x, w, g)
        found[name] = _kept(forward.output[(rows, 0, *pixel)])
        found[f"{name}_input_gradient"] = _kept(forward.input_gradient[(rows, 0, *pixel)])
        x, g = np.zeros_like(x), np.zeros_like(g)
        x[(0, 0, *pixel)] = 1
        g[(0, rows, *pixel)] = steps
        backward = function(x, w, g)
        found[f"{name}_weight_gradient"] = _kept(backward.weight_gradient[(rows, 0, *tap)])
    return found


def _kept(values: np.ndarray) -> int:
    """Return how many of 1 + 2**-1, 1 + 2**-2, ... are still more than 1."""
    return int(np.count_nonzero(values.astype(np.float64) != 1.0))
