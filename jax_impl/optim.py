"""Adam, RMSprop and SGD by Optax, as torch.optim has them, and their state by canonical name."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from jax_impl import ops
from jax_impl.weights import from_canonical, to_canonical
from parity.architecture import PARAMETERS
from parity.optimizers import (
    ADAM_BETAS,
    EPS,
    RMSPROP_ALPHA,
    SGD_MOMENTUM,
    SLOTS,
    STEP,
    OptimizerName,
    slot_name,
)

_OPTAX_NAMES = {
    "exp_avg": "mu",
    "exp_avg_sq": "nu",
    "square_avg": "nu",
    "momentum_buffer": "trace",
}


def exact_optimizer(name: OptimizerName, lr: float) -> optax.GradientTransformation:
    """Return Adam, RMSprop or SGD in the exact arithmetic, with Optax's state.

    Its updates are to be subtracted, by `ops.descend`.
    """

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        def each(function: Any, *trees: Any) -> tuple[Any, Any]:
            pairs = jax.tree.map(lambda *x: function(*x, lr=lr), updates, *trees)
            return jax.tree.transpose(jax.tree.structure(updates), None, pairs)

        match name:
            case "adam":
                count = state.count + 1
                steps, (mu, nu) = each(partial(ops.adam, step=count), state.mu, state.nu)
                return steps, optax.ScaleByAdamState(count, mu, nu)
            case "rmsprop":
                steps, nu = each(ops.rmsprop, state.nu)
                return steps, optax.ScaleByRmsState(nu)
            case "sgd":
                steps, trace = each(ops.sgd, state.trace)
                return steps, optax.TraceState(trace)

    def init(params: Any) -> Any:
        zeros = jax.tree.map(jnp.zeros_like, params)
        match name:
            case "adam":
                return optax.ScaleByAdamState(jnp.zeros((), jnp.int32), zeros, zeros)
            case "rmsprop":
                return optax.ScaleByRmsState(zeros)
            case "sgd":
                return optax.TraceState(zeros)

    return optax.GradientTransformation(init, update)


def without_x64(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """Return an optimizer of float32 with the bits that it has where jax_enable_x64 is off.

    Under it Optax computes Adam's bias corrections, powers of a Python float, in float64.
    """

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        with jax.enable_x64(False):
            return optimizer.update(updates, state, params)

    return optax.GradientTransformation(optimizer.init, update)


def make_optimizer(
    name: OptimizerName, lr: float, *, exact: bool = False
) -> optax.GradientTransformation:
    """Return an Optax transformation; constants are those of parity.optimizers."""
    if exact:
        return exact_optimizer(name, lr)
    match name:
        case "adam":
            return optax.adam(lr, b1=ADAM_BETAS[0], b2=ADAM_BETAS[1], eps=EPS)
        case "rmsprop":
            return optax.rmsprop(lr, decay=RMSPROP_ALPHA, eps=EPS, eps_in_sqrt=False)
        case "sgd":
            return optax.sgd(lr, momentum=SGD_MOMENTUM)


def load_slots(
    name: OptimizerName,
    optimizer: optax.GradientTransformation,
    params: nnx.State,
    state: Mapping[str, np.ndarray],
) -> optax.OptState:
    """Return the Optax state that canonical tensors describe."""
    fields: dict[str, Any] = {
        _OPTAX_NAMES[slot]: from_canonical(
            params, {parameter: state[slot_name(slot, parameter)] for parameter in PARAMETERS}
        )
        for slot in SLOTS[name]
    }
    if name == "adam":
        fields["count"] = jnp.asarray(state[STEP], jnp.int32)
    return optax.tree.set(optimizer.init(params), **fields)


def slots(name: OptimizerName, opt_state: optax.OptState) -> dict[str, np.ndarray]:
    """Return copies of the optimizer's tensors by canonical name, without the step."""
    return {
        slot_name(slot, parameter): array
        for slot in SLOTS[name]
        for parameter, array in to_canonical(optax.tree.get(opt_state, _OPTAX_NAMES[slot])).items()
    }
