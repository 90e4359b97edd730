import numpy as np
import pytest
import torch
from torch import nn

from parity.architecture import PARAMETERS
from parity.optimizers import SLOTS, STEP, initial_state, slot_name
from torch_impl.model import SimpleCNN
from torch_impl.optim import load_slots, make_optimizer, slots

LR = 0.01


def grads_of(seed: int, count: int = 3) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.normal(0, 1, (4, 3)) for _ in range(count)]


class One(nn.Module):
    """A module of one parameter."""

    def __init__(self, value: np.ndarray) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(value))


def steps(optimizer: torch.optim.Optimizer, module: One, grads: list[np.ndarray]) -> np.ndarray:
    for grad in grads:
        module.weight.grad = torch.tensor(grad)
        optimizer.step()
    return module.weight.detach().numpy()


@pytest.mark.parametrize("name", SLOTS)
def test_an_update_is_the_published_formula(name, updated):
    weight, grads = grads_of(1)[0], grads_of(2)
    module = One(weight)
    found = steps(make_optimizer(name, LR, module), module, grads)
    zeros = {slot: np.zeros_like(weight) for slot in SLOTS[name]}
    # Three updates of a few operations each: float64 rounds each to 1e-16.
    np.testing.assert_allclose(found, updated(name, weight, grads, lr=LR, **zeros), rtol=1e-13)


@pytest.mark.parametrize("name", SLOTS)
def test_a_loaded_state_goes_on_with_its_slots_and_its_step(name, updated):
    weight, *buffers = grads_of(3)
    state = {slot: np.abs(buffer) for slot, buffer in zip(SLOTS[name], buffers, strict=False)}
    module = One(weight)
    optimizer = make_optimizer(name, LR, module)
    canonical = {slot_name(slot, "weight"): array for slot, array in state.items()}
    load_slots(name, optimizer, module, canonical | {STEP: np.array(7, np.int64)})
    found = steps(optimizer, module, grads_of(4))
    expected = updated(name, weight, grads_of(4), lr=LR, step=7, **state)
    np.testing.assert_allclose(found, expected, rtol=1e-13)  # as above


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SLOTS)
def test_slots_come_back_to_the_bit(name, dtype):
    random = np.random.default_rng(5)
    model = SimpleCNN(getattr(torch, dtype))
    optimizer = make_optimizer(name, LR, model)
    state = {
        slot_name(slot, parameter): random.normal(0, 1, tensor.shape).astype(dtype)
        for slot in SLOTS[name]
        for parameter, tensor in PARAMETERS.items()
    }
    load_slots(name, optimizer, model, state | {STEP: np.array(3, np.int64)})
    found = slots(name, optimizer, model)
    assert {n: (a.dtype, a.shape, a.tobytes()) for n, a in found.items()} == {
        n: (a.dtype, a.shape, a.tobytes()) for n, a in state.items()
    }


@pytest.mark.parametrize("name", SLOTS)
def test_the_slots_are_all_that_the_optimizer_keeps(name):
    module = One(np.ones((2, 2)))
    optimizer = make_optimizer(name, LR, module)
    steps(optimizer, module, [np.ones((2, 2))])
    assert {key for key in optimizer.state[module.weight] if key != "step"} == set(SLOTS[name])


@pytest.mark.parametrize("name", SLOTS)
def test_beginning_with_zeros_is_beginning_with_nothing(name):
    weight, *grads = grads_of(6)
    fresh, zeros = One(weight), One(weight)
    by_itself = steps(make_optimizer(name, LR, fresh), fresh, grads)
    optimizer = make_optimizer(name, LR, zeros)
    state = {slot_name(slot, "weight"): np.zeros_like(weight) for slot in SLOTS[name]}
    load_slots(name, optimizer, zeros, state | {STEP: np.zeros((), np.int64)})
    assert steps(optimizer, zeros, grads).tobytes() == by_itself.tobytes()


def test_the_first_state_fits_every_optimizer(random_weights):
    model = SimpleCNN(torch.float32)
    for name in SLOTS:
        state = initial_state(name, random_weights(1, "float32"))
        optimizer = make_optimizer(name, LR, model)
        load_slots(name, optimizer, model, state)
        assert set(slots(name, optimizer, model)) | {STEP} == set(state)
