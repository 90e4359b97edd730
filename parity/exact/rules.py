"""The bounds that make every sum of the exact arithmetic exact, whatever its order.

Numbers are float32; inside an operation they are float64. A sum of integers is exact in float64, in
any order, with or without fused multiply-add, as long as it stays within 2**53. So operands are
quantised to integers of as many bits as the number of terms allows.
"""

import numpy as np

from parity.errors import UserError

MANTISSA_BITS = 53
"""Integers up to 2**53 are float64 values."""

MAX_OPERAND_BITS = 20
"""Three digits of base 128 in [-64, 63] hold integers up to 2**20: what int8 engines can take."""

MIN_OPERAND_BITS = 11
"""TF32 keeps 11 bits; an exact arithmetic below that would be no improvement."""

SMALLEST_NORMAL = 2.0**-126
"""Results below it become +0: XLA on CPU flushes float32 subnormals, PyTorch does not."""


def flush_subnormals(x: np.ndarray) -> np.ndarray:
    """Return x, of any type, with +0 for every value below 2**-126: as an operation's results are.

    What comes from elsewhere, such as weights of a file, needs it: read by XLA on CPU as 0, and by
    PyTorch as what it is, a subnormal would tell the two apart.
    """
    return np.where(np.abs(x) < SMALLEST_NORMAL, x.dtype.type(0), x)


def operand_bits(num_terms: int) -> int:
    """Return the bits b of each operand of a dot product: 2b + ceil(log2(num_terms)) <= 53.

    Args:
        num_terms: The longest contraction that the operand takes part in, over all shards.

    Raises:
        UserError: If so many terms leave less than 11 bits.
    """
    bits = (MANTISSA_BITS - _log2_ceil(num_terms)) // 2
    if bits < MIN_OPERAND_BITS:
        raise UserError(
            f"A sum of {num_terms:,} products leaves {bits} bits an operand, and exact arithmetic "
            f"needs {MIN_OPERAND_BITS}. Use a smaller batch or a narrower layer."
        )
    return min(bits, MAX_OPERAND_BITS)


def term_bits(num_terms: int) -> int:
    """Return the bits of each term of a sum: 53 - ceil(log2(num_terms)) - 1."""
    return MANTISSA_BITS - _log2_ceil(num_terms) - 1


def _log2_ceil(count: int) -> int:
    assert count >= 1
    return (count - 1).bit_length()


def bias_corrections(beta: float) -> np.ndarray:
    """Return Adam's 1 / (1 - beta**t) for t = 1, 2, ..., float32, until it is 1 for good.

    A table, because no library's power is the same everywhere; products of Python floats are.
    """
    power, table = 1.0, []
    while not table or table[-1] != 1:
        power *= beta
        table.append(np.float32(1 / (1 - power)))
    return np.array(table, np.float32)
