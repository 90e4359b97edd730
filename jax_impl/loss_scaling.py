"""Dynamic loss scaling by the rules of torch.amp.GradScaler, and its state by canonical name."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from parity.mixed_precision import (
    BACKOFF_FACTOR,
    GROWTH_FACTOR,
    GROWTH_INTERVAL,
    GROWTH_TRACKER,
    SCALE,
)


class LossScale(NamedTuple):
    """By what the loss is multiplied, and for how many updates it has been so."""

    scale: Array
    growth_tracker: Array


def load(state: Mapping[str, np.ndarray]) -> LossScale:
    """Return the loss scale that canonical tensors describe."""
    return LossScale(jnp.asarray(state[SCALE]), jnp.asarray(state[GROWTH_TRACKER]))


def state(loss_scale: LossScale) -> dict[str, np.ndarray]:
    """Return scale and growth tracker by canonical name."""
    return {
        SCALE: np.array(loss_scale.scale, np.float32),
        GROWTH_TRACKER: np.array(loss_scale.growth_tracker, np.int32),
    }


def unscale(loss_scale: LossScale, grads: Any) -> tuple[Any, Array]:
    """Return the gradients of the loss itself, and whether all of them are finite."""
    # Of 2**127 it is subnormal, and XLA on CPUs makes it 0: a scale that only zeros could reach.
    inverse = 1 / loss_scale.scale
    grads = jax.tree.map(lambda grad: grad * inverse, grads)
    finite = jax.tree.reduce(
        lambda all_finite, grad: all_finite & jnp.isfinite(grad).all(), grads, jnp.array(True)
    )
    return grads, finite


def adjust(loss_scale: LossScale, finite: Array) -> LossScale:
    """Return the loss scale after a step whose gradients were finite, or were not."""
    tracker = loss_scale.growth_tracker + 1
    grows = tracker == GROWTH_INTERVAL
    grown = jnp.where(grows, loss_scale.scale * GROWTH_FACTOR, loss_scale.scale)
    # The scale stays where it was if it would overflow.
    grown = jnp.where(jnp.isfinite(grown), grown, loss_scale.scale)
    return LossScale(
        scale=jnp.where(finite, grown, loss_scale.scale * BACKOFF_FACTOR),
        growth_tracker=jnp.where(finite & ~grows, tracker, 0),
    )
