"""Adam, RMSprop and SGD by Optax, as torch.optim has them, and their state by canonical name."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

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


def make_optimizer(name: OptimizerName, lr: float) -> optax.GradientTransformation:
    """Return an Optax transformation; constants are those of parity.optimizers."""
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
