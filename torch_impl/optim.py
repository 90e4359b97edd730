"""Adam, RMSprop and SGD by torch.optim, and their state by canonical name."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

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
from torch_impl import ops


class ExactOptimizer(torch.optim.Optimizer):
    """Adam, RMSprop or SGD in the exact arithmetic: `ops.adam`, `ops.rmsprop`, `ops.sgd`."""

    def __init__(self, name: OptimizerName, lr: float, params: Iterable[nn.Parameter]) -> None:
        super().__init__(params, {"lr": lr})
        self._name: OptimizerName = name

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update every parameter from its gradient."""
        update = {"adam": ops.adam, "rmsprop": ops.rmsprop, "sgd": ops.sgd}[self._name]
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if "step" in state:
                    state["step"] += 1
                for part in ops.blocks(parameter):
                    here = {name: x[part] if x.ndim else x for name, x in state.items()}
                    update(parameter[part], parameter.grad[part], here, group["lr"])


def make_optimizer(
    name: OptimizerName, lr: float, model: nn.Module, *, exact: bool = False
) -> torch.optim.Optimizer:
    """Return an optimizer of the model's parameters; constants are those of parity.optimizers."""
    params = model.parameters()
    if exact:
        return ExactOptimizer(name, lr, params)
    match name:
        case "adam":
            return torch.optim.Adam(params, lr, betas=ADAM_BETAS, eps=EPS)
        case "rmsprop":
            return torch.optim.RMSprop(params, lr, alpha=RMSPROP_ALPHA, eps=EPS)
        case "sgd":
            return torch.optim.SGD(params, lr, momentum=SGD_MOMENTUM)


def load_slots(
    name: OptimizerName,
    optimizer: torch.optim.Optimizer,
    model: nn.Module,
    state: Mapping[str, np.ndarray],
) -> None:
    """Set the optimizer's state from canonical tensors."""
    for parameter, tensor in model.named_parameters():
        slots = optimizer.state[tensor]
        for slot in SLOTS[name]:
            slots[slot] = torch.tensor(state[slot_name(slot, parameter)], device=tensor.device)
        if name != "sgd":
            slots["step"] = torch.tensor(float(state[STEP]), dtype=torch.float32)


def slots(
    name: OptimizerName, optimizer: torch.optim.Optimizer, model: nn.Module
) -> dict[str, np.ndarray]:
    """Return copies of the optimizer's tensors by canonical name, without the step."""
    return {
        slot_name(slot, parameter): optimizer.state[tensor][slot].cpu().numpy().copy()
        for parameter, tensor in model.named_parameters()
        for slot in SLOTS[name]
    }
