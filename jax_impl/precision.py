"""The precision of products: set, rounded by ourselves, and read back by what comes out."""

import re
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from parity import operands
from parity.arithmetic import Arithmetic
from parity.operands import FLOAT32_BITS, Products


def set_precision(arithmetic: Arithmetic) -> None:
    """Set what XLA may do to operands of float32 products, and how JAX mixes types and ranks."""
    named = {"tf32": "tensorfloat32", "bf16": "bfloat16"}.get(arithmetic, "highest")
    jax.config.update("jax_default_matmul_precision", named)
    # The defaults, which variables of the environment may have made stricter than this code is.
    jax.config.update("jax_numpy_dtype_promotion", "standard")
    jax.config.update("jax_numpy_rank_promotion", "allow")
    jax.config.update("jax_transfer_guard", "allow")


def precision_in_force() -> dict[str, str]:
    """Return the precision of float32 products, read back: "highest" is IEEE float32."""
    product = jax.jit(jnp.matmul).lower(jnp.ones((2, 2)), jnp.ones((2, 2))).as_text()
    found = re.search(r"precision = \[(\w+), \1\]", product)
    return {"matmul": found.group(1).lower() if found else "default"}


def round_operand(x: Array, bits: int) -> Array:
    """Return float32 values rounded to `bits` mantissa bits: see parity.operands."""
    drop = FLOAT32_BITS - bits
    integer = jax.lax.bitcast_convert_type(x, jnp.int32)
    odd = (integer >> drop) & 1
    rounded = (integer + ((1 << (drop - 1)) - 1 + odd)) & ~((1 << drop) - 1)
    # The choice is between integers, because a float one may lose a subnormal on its way.
    is_nan = (integer & 0x7FFFFFFF) > 0x7F800000
    return jax.lax.bitcast_convert_type(jnp.where(is_nan, integer, rounded), jnp.float32)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _rounding_operand(x: Array, bits: int) -> Array:
    """Rounds on the way forward; the gradient passes, as it came from a product of rounded ones."""
    return round_operand(x, bits)


_rounding_operand.defvjp(
    lambda x, bits: (round_operand(x, bits), None), lambda bits, _, grad: (grad,)
)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _rounding_gradient(y: Array, bits: int) -> Array:
    """Rounds the gradient on its way into the products that make those of input and weight."""
    return y


_rounding_gradient.defvjp(
    lambda y, bits: (y, None), lambda bits, _, grad: (round_operand(grad, bits),)
)


def emulated(product: Any, bits: int) -> Any:
    """Return lax.dot_general or lax.conv_general_dilated with rounded operands, also backward."""

    def rounded(x: Array, weight: Array, *arguments: Any, **options: Any) -> Array:
        operand, kernel = (_rounding_operand(array, bits) for array in (x, weight))
        return _rounding_gradient(product(operand, kernel, *arguments, **options), bits)

    return rounded


def product_bits(model: Any) -> dict[str, int]:
    """Return how many mantissa bits the model's products keep of an operand, measured.

    Args:
        model: A SimpleCNN; it is left alone.
    """
    dtype = model.fc1.kernel[...].dtype

    def layer(name: str, to_jax: tuple[int, ...], input_to_jax: tuple[int, ...]) -> Any:
        graph, params = nnx.split(getattr(model, name))

        @jax.jit
        def products(x: Array, w: Array, g: Array) -> Any:
            def forward(x: Array, w: Array) -> Array:
                module = nnx.merge(graph, params, copy=True)
                module.kernel[...] = w
                module.bias[...] = jnp.zeros_like(module.bias[...])
                return module(x)

            y, gradients = jax.vjp(forward, x, w)
            return y, *gradients(g.astype(y.dtype))

        def run(x: np.ndarray, w: np.ndarray, g: np.ndarray) -> Products:
            arrays = (x.transpose(input_to_jax), w.transpose(to_jax), g.transpose(input_to_jax))
            y, dx, dw = (np.asarray(a.astype(dtype)) for a in products(*map(jnp.asarray, arrays)))
            back = np.argsort(input_to_jax)
            return Products(y.transpose(back), dx.transpose(back), dw.transpose(np.argsort(to_jax)))

        return run

    layers = {
        "linear": layer("fc1", (1, 0), (0, 1)),
        "conv": layer("conv2", (2, 3, 1, 0), (0, 2, 3, 1)),
    }
    return operands.product_bits(layers, str(dtype))
