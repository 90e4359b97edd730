"""The engines of the exact matrix product in PyTorch. See parity.exact.engines."""

from functools import reduce
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from parity.config import EngineName
from parity.exact.engines import BASE, MAX_TERMS, NUM_DIGITS, SAMPLE_SHAPE, fastest


class Engine(Protocol):
    """Computes sums of products of integers."""

    def operand(self, q: Tensor) -> Tensor:
        """Return integers, float64, as `product` takes them: a first axis more, the digits."""
        ...

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the exact sum over k of a_ik b_kj. Shape (i, j), float64.

        Args:
            a: Operands. Shape (digits, i, k).
            b: Operands. Shape (digits, k, j).
        """
        ...


class Float64Engine:
    """One float64 product."""

    def operand(self, q: Tensor) -> Tensor:
        """See Engine. One digit: the number."""
        return q[None]

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """See Engine."""
        return a[0] @ b[0]


class Int8Engine:
    """Nine int8 products with int32 sums."""

    def operand(self, q: Tensor) -> Tensor:
        """See Engine. Digits of base 128, the lowest first, int8."""
        digits: list[Tensor] = []
        for _ in range(NUM_DIGITS - 1):
            higher = torch.floor((q + BASE / 2) * (1 / BASE))
            digits.append((q - higher * BASE).to(torch.int8))
            q = higher
        return torch.stack([*digits, q.to(torch.int8)])

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """See Engine."""
        parts = zip(a.split(MAX_TERMS, 2), b.split(MAX_TERMS, 1), strict=True)
        return reduce(torch.add, (_sum_of_digits(*part) for part in parts))


def _sum_of_digits(a: Tensor, b: Tensor) -> Tensor:
    rows, columns = a.shape[1], b.shape[2]
    a, b = _padded(a, 32), _padded(b, 8)
    # Horner's rule, the highest weight first: every step is an integer below 2**53.
    result = a.new_zeros((), dtype=torch.float64)
    for weight in reversed(range(2 * NUM_DIGITS - 1)):
        pairs = ((i, weight - i) for i in range(NUM_DIGITS) if 0 <= weight - i < NUM_DIGITS)
        sums = reduce(torch.add, (torch.ops.aten._int_mm(a[i], b[j]) for i, j in pairs))
        result = result * BASE + sums
    return result[:rows, :columns]


def _padded(x: Tensor, multiple: int) -> Tensor:
    """Return x with zeros: on GPUs _int_mm takes more than 16 rows, and multiples of 8."""
    rows, columns = -x.shape[1] % multiple, -x.shape[2] % 8
    return F.pad(x, (0, columns, 0, rows)) if rows or columns else x


ENGINES: dict[EngineName, Engine] = {"float64": Float64Engine(), "int8": Int8Engine()}


def choose(device: torch.device) -> EngineName:
    """Return the engine that is the fastest on a device."""
    rows, terms, columns = SAMPLE_SHAPE
    ones = torch.ones(rows + columns, terms, dtype=torch.float64, device=device)

    def sample(engine: Engine) -> float:
        a, b = engine.operand(ones).split((rows, columns), 1)
        return engine.product(a, b.transpose(1, 2)).sum().item()  # waits for the device

    return fastest({name: lambda e=engine: sample(e) for name, engine in ENGINES.items()})
