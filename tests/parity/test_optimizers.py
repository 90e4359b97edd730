from typing import get_args

import numpy as np
import pytest

from parity.architecture import BUFFERS, PARAMETERS, initial_weights
from parity.config import OptimizerName
from parity.optimizers import SLOTS, STEP, initial_state, slot_name

NUM_SLOTS = {"adam": 2, "rmsprop": 1, "sgd": 1}


def test_every_optimizer_of_the_configuration_has_its_slots():
    assert {name: len(slots) for name, slots in SLOTS.items()} == NUM_SLOTS
    assert set(SLOTS) == set(get_args(OptimizerName))


@pytest.mark.parametrize("optimizer", SLOTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_first_state_is_zeros_like_the_parameters_and_step_zero(optimizer, dtype):
    weights = {name: array.astype(dtype) for name, array in initial_weights(1).items()}
    state = initial_state(optimizer, weights)
    step = state.pop(STEP)
    assert (step.shape, step.dtype, int(step)) == ((), np.int64, 0)
    assert len(state) == NUM_SLOTS[optimizer] * len(PARAMETERS)
    for slot in SLOTS[optimizer]:
        for name in PARAMETERS:
            array = state[slot_name(slot, name)]
            assert (array.shape, array.dtype) == (PARAMETERS[name].shape, dtype)
            assert not array.any()


@pytest.mark.parametrize("optimizer", SLOTS)
def test_no_name_of_the_state_is_a_tensor_of_the_network(optimizer):
    state = initial_state(optimizer, initial_weights(1))
    assert not set(state) & set(PARAMETERS | BUFFERS)
    assert all(name.startswith("optimizer.") for name in state)


def test_a_slot_is_named_after_its_parameter():
    assert slot_name("exp_avg", "fc1.bias") == "optimizer.exp_avg.fc1.bias"
