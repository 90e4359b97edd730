"""exp and log by integers alone: one algorithm for NumPy, PyTorch and JAX, provable in all three.

Both are fixed-point evaluations in int64. Adding, multiplying, shifting and dividing integers have
one result everywhere, so no compiler, instruction set or library can change a bit. The functions
use nothing but operators and so take the arrays of any framework.

Source: argument reduction by log 2 and Horner's rule, as in Muller, Elementary Functions (2016),
chapters 3 and 11.
"""

import math
from fractions import Fraction
from typing import Any

ARGUMENT_BITS = 40
"""exp's argument counts in units of 2**-40."""

EXP_BITS = 48
"""exp's result, and log's argument, count in units of 2**-48."""

LOG_BITS = 31
"""log's result counts in units of 2**-31."""

SMALLEST_ARGUMENT = -34.0
"""exp(-34) is below 2**-49: exp of anything smaller is 0."""

_BITS = 31
"""Inner precision: a product of two numbers up to 1 stays below 2**63."""
_LOG_OF_2 = Fraction(693147180559945309417232121458, 10**30)
_LOG2_ARGUMENT = round(_LOG_OF_2 * 2**ARGUMENT_BITS)
_LOG2 = round(_LOG_OF_2 * 2**_BITS)
_INVERSE_LOG2 = math.floor(2**20 / _LOG_OF_2)  # down, so that the remainder is never negative
_EXP_SERIES = [round(Fraction(2**_BITS, math.factorial(k))) for k in range(13)]
"""The first term left out is below 0.7**13 / 13! < 2**-39."""
_LOG_SERIES = [round(Fraction(2**_BITS, 2 * k + 1)) for k in range(11)]
"""The first term left out is below (1/3)**23 / 23 < 2**-40."""


def exp(argument: Any) -> Any:
    """Return exp(-argument / 2**40) in units of 2**-48, with a relative error below 2**-28.

    Rounding down to whole units comes on top. exp(0) is exactly 2**48. From one argument to the
    next it never rises by more than 2**-30 of itself and a unit.

    Args:
        argument: From 0 to 34 * 2**40. Any shape, int64.
    """
    halvings = ((argument >> 20) * _INVERSE_LOG2) >> ARGUMENT_BITS
    rest = (argument - halvings * _LOG2_ARGUMENT) >> (ARGUMENT_BITS - _BITS)
    return (exp_series(rest) << (EXP_BITS - _BITS)) >> halvings


def exp_series(rest: Any) -> Any:
    """Return exp(-rest / 2**31) in units of 2**-31, for `rest` from 0 to just above log 2."""
    value = rest * 0 + _EXP_SERIES[-1]
    for coefficient in reversed(_EXP_SERIES[:-1]):
        value = coefficient - ((value * rest) >> _BITS)
    return value


def log(argument: Any, largest: int) -> Any:
    """Return log(argument / 2**48) in units of 2**-31, with an absolute error below 2**-27.

    Args:
        argument: From 2**48 to `largest` * 2**48. Any shape, int64.
        largest: Largest ratio, below 2**14.
    """
    doublings = argument * 0
    for power in range(1, largest.bit_length()):
        doublings = doublings + (argument >= 2 ** (EXP_BITS + power)) * 1
    # From 1 to 2, in units of 2**-31; log m = 2 atanh((m - 1) / (m + 1)).
    m = (argument >> doublings) >> (EXP_BITS - _BITS)
    z = ((m - 2**_BITS) << _BITS) // (m + 2**_BITS)
    square = (z * z) >> _BITS
    value = z * 0 + _LOG_SERIES[-1]
    for coefficient in reversed(_LOG_SERIES[:-1]):
        value = coefficient + ((value * square) >> _BITS)
    return doublings * _LOG2 + ((value * z) >> (_BITS - 1))
