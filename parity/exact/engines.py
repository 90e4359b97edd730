"""The engines of the exact matrix product: what computes it, and which one a device gets.

The product is a sum of integers, so that every engine that computes it gives the same bits:

- float64: one product in float64, whose sums of at most 2**53 are exact;
- int8: operands cut into digits of base 128, nine int8 products with int32 sums. For processors
  whose int8 is so much faster than their float64 that nine cost less than one.
"""

import time
from collections.abc import Callable, Mapping

from parity.config import EngineName

BASE = 128
"""Of the digits, which lie in [-64, 63]: full-range int8 saturates on processors without VNNI."""

NUM_DIGITS = 3
"""They hold integers up to 2**20, the largest operand; the last digit may be 64."""

MAX_TERMS = 2**17
"""Of one int32 sum: three products of digits a term stay below 3 * 2**17 * 2**12 < 2**31."""

SAMPLE_SHAPE = (1024, 576, 128)
"""Rows, terms and columns of the product that engines are timed with: 16 images in conv3."""


def fastest(engines: Mapping[EngineName, Callable[[], object]]) -> EngineName:
    """Return the name of the engine that multiplies fastest, the first one if equal.

    Args:
        engines: Each computes one product and returns when it is there.
    """
    for product in engines.values():
        product()  # compiles, loads a library
    best = dict.fromkeys(engines, float("inf"))
    for _ in range(5):
        for name, product in engines.items():
            start = time.perf_counter()
            product()
            best[name] = min(best[name], time.perf_counter() - start)
    return min(best, key=lambda name: best[name])
