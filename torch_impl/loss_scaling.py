"""Dynamic loss scaling by torch.amp.GradScaler, and its state by canonical name."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from parity.mixed_precision import (
    BACKOFF_FACTOR,
    GROWTH_FACTOR,
    GROWTH_INTERVAL,
    GROWTH_TRACKER,
    INIT_SCALE,
    SCALE,
)


class LossScaler:
    """A GradScaler whose state is canonical tensors."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._scaler = torch.amp.GradScaler(
            device.type,
            init_scale=INIT_SCALE,
            growth_factor=GROWTH_FACTOR,
            backoff_factor=BACKOFF_FACTOR,
            growth_interval=GROWTH_INTERVAL,
        )

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over scale and growth tracker."""
        mine = self._scaler.state_dict()
        mine |= {"scale": float(state[SCALE]), "_growth_tracker": int(state[GROWTH_TRACKER])}
        # A new one, because load_state_dict leaves tensors that were in use at their old value.
        self.__init__(self._device)
        self._scaler.load_state_dict(mine)

    def state(self) -> dict[str, np.ndarray]:
        """Return scale and growth tracker."""
        mine = self._scaler.state_dict()
        return {
            SCALE: np.array(mine["scale"], np.float32),
            GROWTH_TRACKER: np.array(mine["_growth_tracker"], np.int32),
        }

    def update(self, loss: Tensor, optimizer: torch.optim.Optimizer) -> bool:
        """Do an update from a scaled loss; return False if a gradient was not finite: none done."""
        before = self._scaler.get_scale()
        self._scaler.scale(loss).backward()
        self._scaler.step(optimizer)
        self._scaler.update()
        # Only a skipped update makes the scale smaller.
        return self._scaler.get_scale() >= before
