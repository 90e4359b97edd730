"""A batch split over devices by shard_map: what all of them must know of it together.

Outside `over` the one device holds the whole batch.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax
from jax import Array

_axis: ContextVar[tuple[str, int] | None] = ContextVar("_axis", default=None)


@contextmanager
def over(axis_name: str, num_shards: int) -> Iterator[None]:
    """Trace what follows as one of `num_shards` equal parts along a mesh's axis."""
    token = _axis.set((axis_name, num_shards))
    try:
        yield
    finally:
        _axis.reset(token)


def count() -> int:
    """Return the number of equal parts that a batch has."""
    axis = _axis.get()
    return 1 if axis is None else axis[1]


def total(x: Array) -> Array:
    """Return the sum of x over all parts; exact, and so in any order, if x holds integers."""
    axis = _axis.get()
    return x if axis is None else jax.lax.psum(x, axis[0])


def largest(x: Array) -> Array:
    """Return the largest x of all parts."""
    axis = _axis.get()
    return x if axis is None else jax.lax.pmax(x, axis[0])
