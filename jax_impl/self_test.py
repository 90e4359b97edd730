"""JAX's part of the start-up test of the exact arithmetic."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_impl import ops
from jax_impl.engines import Engine
from parity.exact import self_test
from parity.exact.transcendental import exp


def check(device: Any, engine: Engine) -> None:
    """Refuse the device (jax.Device) if its arithmetic does not hold.

    Raises:
        UserError: Names the operation.
    """

    def here(function: Callable[..., jax.Array]) -> Callable[..., np.ndarray]:
        # Compiled, as training is: fusion is what could change a bit.
        compiled = jax.jit(function)
        return lambda *arrays: np.asarray(compiled(*(jax.device_put(a, device) for a in arrays)))

    def fused(a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
        return ops.to_float32(ops.double(a) * ops.double(b) + ops.double(c))

    def chained(a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
        product = ops.to_float32(ops.double(a) * ops.double(b))
        return ops.to_float32(ops.double(product) + ops.double(c))

    operations = self_test.Operations(
        product=here(lambda a, b: engine.product(engine.operand(a), engine.operand(b))),
        to_float32=here(ops.to_float32),
        square_root=here(ops.square_root),
        fused=here(fused),
        chained=here(chained),
        divide=here(jnp.divide),
        exp=here(exp),
    )
    self_test.self_test(device.device_kind, operations)
