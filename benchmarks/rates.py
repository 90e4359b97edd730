"""What the machine can do in a framework: matrix products and memory traffic, a second."""

import importlib
import time
from collections.abc import Callable
from typing import Any

PRODUCT_SIZE = 2048
COPY_BYTES = 2**28
"""Beyond the caches of any processor."""


class Rates:
    """Times one large matrix product, and one pass through memory.

    Args:
        framework: jax or torch.
        dtype: Of the product.
        device: As the train commands take it; JAX computes on its default device.
    """

    def __init__(self, framework: str, dtype: str, device: str) -> None:
        module = importlib.import_module(framework)
        made = _in_torch(module, dtype, device) if framework == "torch" else _in_jax(module, dtype)
        self._product, self._pass = made
        for _ in range(2):
            self._product()
            self._pass()

    def measure(self) -> dict[str, float]:
        """Return thousand million operations and bytes a second, of one of each."""
        return {
            "gop_s": 2 * PRODUCT_SIZE**3 / _seconds(self._product) / 1e9,
            "gb_s": 2 * COPY_BYTES / _seconds(self._pass) / 1e9,
        }


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _in_torch(
    torch: Any, dtype: str, device: str
) -> tuple[Callable[[], object], Callable[[], object]]:
    where = "cpu" if device.startswith("cpu") else device.replace("gpu", "cuda")
    a, b = torch.ones(2, PRODUCT_SIZE, PRODUCT_SIZE, dtype=getattr(torch, dtype), device=where)
    out, memory = torch.empty_like(a), torch.ones(COPY_BYTES // 4, device=where)
    # One number on the host means that all are there.
    return (
        lambda: torch.mm(a, b, out=out)[0, 0].item(),
        lambda: torch.neg(memory, out=memory)[0].item(),
    )


def _in_jax(jax: Any, dtype: str) -> tuple[Callable[[], object], Callable[[], object]]:
    a, b = jax.numpy.ones((2, PRODUCT_SIZE, PRODUCT_SIZE), dtype)
    assert a.dtype == dtype
    product = jax.jit(jax.numpy.matmul)
    negate = jax.jit(jax.numpy.negative, donate_argnums=0)  # in place: no new pages to fetch
    memory = jax.numpy.ones(COPY_BYTES // 4, "float32")

    def through_memory() -> None:
        nonlocal memory
        memory = negate(memory).block_until_ready()

    return lambda: product(a, b).block_until_ready(), through_memory
