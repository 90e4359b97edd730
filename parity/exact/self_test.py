"""The start-up test: does this device's arithmetic hold? Asked before exact training begins.

A TPU has no IEEE float64, a library may emulate it, a device may flush or fuse. Small tensors,
chosen so that any of that shows, are compared with the oracle in every bit.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from parity.errors import UserError
from parity.exact import oracle
from parity.exact.transcendental import exp


class Operations(NamedTuple):
    """A framework's operations on its device, from NumPy to NumPy."""

    product: Callable[[np.ndarray, np.ndarray], np.ndarray]
    """Matrix product of float64 integers."""
    to_float32: Callable[[np.ndarray], np.ndarray]
    square_root: Callable[[np.ndarray], np.ndarray]
    fused: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
    """f(a * b + c) of float32, as BatchNorm and the optimizers compute it."""
    chained: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
    """f(f(a * b) + c) of float32: XLA for GPUs may drop a cast to float32 and back."""
    divide: Callable[[np.ndarray, np.ndarray], np.ndarray]
    """a / b of float64."""
    exp: Callable[[np.ndarray], np.ndarray]
    """`transcendental.exp` of int64."""


def self_test(device: str, operations: Operations) -> None:
    """Compare a device's operations with the oracle.

    Raises:
        UserError: Names the operation that does not hold.
    """
    random = np.random.default_rng(0)
    # The longest contraction of 18-bit operands: 131,072 products of up to 36 bits fill 53 bits.
    a = random.integers(-(2**18), 2**18 + 1, (4, 2**17))
    b = random.integers(-(2**18), 2**18 + 1, (2**17, 4))
    x, y, z = random.standard_normal((3, 512)).astype(np.float32)
    near = np.ldexp(random.uniform(0.5, 2, 512), random.integers(-151, -120, 512))
    halfway = 1 + (random.integers(0, 2**22, 512) + 0.5) * 2.0**-23
    rounded = np.concatenate([near, -near, halfway, [0.0, -0.0]])
    roots = np.abs(np.concatenate([x, np.float32(1) + np.arange(64, dtype=np.float32) * 2**-23]))
    arguments = random.integers(0, 34 * 2**40, 512)
    fused = oracle.to_float32(oracle.double(x) * oracle.double(y) + oracle.double(z))
    rounded_product = oracle.to_float32(oracle.double(x) * oracle.double(y))
    chained = oracle.to_float32(oracle.double(rounded_product) + oracle.double(z))
    wide = oracle.double(x), oracle.double(y)
    cases = {
        "the matrix product": (operations.product(a.astype(float), b.astype(float)), a @ b),
        "rounding to float32": (operations.to_float32(rounded), oracle.to_float32(rounded)),
        "the square root": (operations.square_root(roots), oracle.square_root(roots)),
        "a * b + c": (operations.fused(x, y, z), fused),
        "a * b + c, rounded twice": (operations.chained(x, y, z), chained),
        "the float64 division": (operations.divide(*wide), wide[0] / wide[1]),
        "exp": (operations.exp(arguments), exp(arguments)),
    }
    for name, (found, expected) in cases.items():
        if found.tobytes() != expected.astype(found.dtype).tobytes():
            raise UserError(
                f"The exact arithmetic does not hold on {device}: {name} differs from the oracle. "
                "Its float64 is not IEEE 754's, or is flushed. Use --device cpu, or another "
                "arithmetic."
            )
