"""What the optimizers are: their constants and their state, as torch.optim defines both."""

from collections.abc import Mapping

import numpy as np

from parity.architecture import PARAMETERS
from parity.config import OptimizerName

ADAM_BETAS = (0.9, 0.999)
RMSPROP_ALPHA = 0.99
EPS = 1e-8
"""Added outside the square root, for Adam and RMSprop."""
SGD_MOMENTUM = 0.9

SLOTS: dict[OptimizerName, tuple[str, ...]] = {
    "adam": ("exp_avg", "exp_avg_sq"),
    "rmsprop": ("square_avg",),
    "sgd": ("momentum_buffer",),
}
"""The tensors that an optimizer keeps for each parameter, by torch.optim's names."""

STEP = "optimizer.step"
"""Canonical name of the number of updates done, int64."""


def slot_name(slot: str, parameter: str) -> str:
    """Return the canonical name of a parameter's slot, such as optimizer.exp_avg.fc1.bias."""
    return f"optimizer.{slot}.{parameter}"


def initial_state(
    optimizer: OptimizerName, weights: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the state before the first update, by canonical name: zeros like the parameters.

    torch.optim fills SGD's buffer with the first gradient g; from zeros it becomes 0.9 * 0 + g = g.
    """
    slots = {
        slot_name(slot, name): np.zeros_like(weights[name])
        for slot in SLOTS[optimizer]
        for name in PARAMETERS
    }
    return slots | {STEP: np.zeros((), np.int64)}
