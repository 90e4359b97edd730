"""The engines of the exact matrix product in JAX. See parity.exact.engines."""

from functools import reduce
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from parity.config import EngineName
from parity.exact.engines import BASE, MAX_TERMS, NUM_DIGITS, SAMPLE_SHAPE, fastest


class Engine(Protocol):
    """Computes sums of products of integers."""

    def operand(self, q: Array) -> Array:
        """Return integers, float64, as `product` takes them: a first axis more, the digits."""
        ...

    def product(self, a: Array, b: Array) -> Array:
        """Return the exact sum over k of a_ik b_kj. Shape (i, j), float64.

        Args:
            a: Operands. Shape (digits, i, k).
            b: Operands. Shape (digits, k, j).
        """
        ...


class Float64Engine:
    """One float64 product."""

    def operand(self, q: Array) -> Array:
        """See Engine. One digit: the number. As float32 it is moved in half the time."""
        return q.astype(jnp.float32)[None]

    def product(self, a: Array, b: Array) -> Array:
        """See Engine."""
        return a[0].astype(jnp.float64) @ b[0].astype(jnp.float64)


class Int8Engine:
    """Nine int8 products with int32 sums."""

    def operand(self, q: Array) -> Array:
        """See Engine. Digits of base 128, the lowest first, int8."""
        digits: list[Array] = []
        for _ in range(NUM_DIGITS - 1):
            higher = jnp.floor((q + BASE / 2) * (1 / BASE))
            digits.append((q - higher * BASE).astype(jnp.int8))
            q = higher
        return jnp.stack([*digits, q.astype(jnp.int8)])

    def product(self, a: Array, b: Array) -> Array:
        """See Engine."""
        starts = range(0, a.shape[2], MAX_TERMS)
        parts = ((a[:, :, k : k + MAX_TERMS], b[:, k : k + MAX_TERMS]) for k in starts)
        return reduce(jnp.add, (_sum_of_digits(*part) for part in parts))


def _sum_of_digits(a: Array, b: Array) -> Array:
    # Horner's rule, the highest weight first: every step is an integer below 2**53.
    result = jnp.zeros((), jnp.float64)
    for weight in reversed(range(2 * NUM_DIGITS - 1)):
        pairs = ((i, weight - i) for i in range(NUM_DIGITS) if 0 <= weight - i < NUM_DIGITS)
        sums = reduce(jnp.add, (_int8_product(a[i], b[j]) for i, j in pairs))
        result = result * BASE + sums
    return result


def _int8_product(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, preferred_element_type=jnp.int32)


ENGINES: dict[EngineName, Engine] = {"float64": Float64Engine(), "int8": Int8Engine()}


def choose(device: Any) -> EngineName:
    """Return the engine that is the fastest on a device (jax.Device)."""
    rows, terms, columns = SAMPLE_SHAPE
    ones = jax.device_put(jnp.ones((rows + columns, terms), jnp.float64), device)

    def sample(engine: Engine) -> Any:
        @jax.jit
        def product(ones: Array) -> Array:
            a, b = jnp.split(engine.operand(ones), [rows], 1)
            return engine.product(a, b.transpose(0, 2, 1)).sum()

        return lambda: product(ones).block_until_ready()  # waits for the device

    return fastest({name: sample(engine) for name, engine in ENGINES.items()})
