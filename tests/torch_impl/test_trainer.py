import json

import numpy as np
import pytest
import torch

from parity.architecture import BUFFERS, PARAMETERS
from parity.config import TrainConfig
from parity.errors import UserError
from parity.optimizers import SLOTS, STEP, initial_state, slot_name
from parity.platforms import Platform
from parity.trainer import NonFinite
from torch_impl import trainer as module
from torch_impl.trainer import Trainer

ARITHMETICS = ("float32", "float64")


def make_trainer(optimizer: str = "adam", arithmetic: str = "float32") -> Trainer:
    config = TrainConfig(optimizer=optimizer, arithmetic=arithmetic)  # pyright: ignore[reportArgumentType]
    return Trainer(config, Platform("cpu"), 1)


@pytest.fixture(scope="module")
def trainers():
    """Return a function that gives one trainer for each optimizer and arithmetic."""
    made = {}

    def get(optimizer: str = "adam", arithmetic: str = "float32") -> Trainer:
        key = optimizer, arithmetic
        if key not in made:
            made[key] = make_trainer(*key)
        return made[key]

    return get


@pytest.fixture
def state_of(random_weights):
    """Return a function that makes a whole state, slots and step included."""

    def make(optimizer: str = "adam", arithmetic: str = "float32", seed: int = 1):
        weights = random_weights(seed, arithmetic)
        random = np.random.default_rng(seed)
        state = weights | initial_state(optimizer, weights)
        for slot in SLOTS[optimizer]:
            for name, tensor in PARAMETERS.items():
                values = np.abs(random.normal(0, 1e-2, tensor.shape))
                state[slot_name(slot, name)] = values.astype(arithmetic)
        return state | {STEP: np.array(7, np.int64)}

    return make


def bits(tensors) -> dict[str, tuple]:
    return {name: (a.dtype, a.shape, a.tobytes()) for name, a in tensors.items()}


def copies(tensors) -> dict[str, np.ndarray]:
    return {name: array.copy() for name, array in tensors.items()}


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@pytest.mark.parametrize("optimizer", SLOTS)
def test_a_state_comes_back_to_the_bit(trainers, state_of, optimizer, arithmetic):
    trainer, state = trainers(optimizer, arithmetic), state_of(optimizer, arithmetic)
    trainer.load(state)
    assert bits(trainer.state()) == bits(state)


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@pytest.mark.parametrize("optimizer", SLOTS)
def test_a_step_after_loading_is_the_step_that_would_have_been(
    trainers, state_of, random_batch, optimizer, arithmetic
):
    trainer = trainers(optimizer, arithmetic)
    trainer.load(state_of(optimizer, arithmetic))
    trainer.train_step(random_batch(1))
    between = trainer.state()
    uninterrupted = trainer.train_step(random_batch(2))
    after = trainer.state()
    assert between[STEP] == 8
    assert bits(after) != bits(between)
    trainer.load(state_of(optimizer, arithmetic, seed=9))  # another run's
    trainer.load(between)
    resumed = trainer.train_step(random_batch(2))
    assert resumed.loss.tobytes() == uninterrupted.loss.tobytes()
    assert resumed.logits.tobytes() == uninterrupted.logits.tobytes()
    assert bits(trainer.state()) == bits(after)


def test_a_new_trainer_goes_on_where_another_stopped(trainers, state_of, random_batch):
    old, new = trainers(), make_trainer()
    old.load(state_of())
    old.train_step(random_batch(1))
    new.load(old.state())
    for trainer in (old, new):
        trainer.train_step(random_batch(2))
    assert bits(new.state()) == bits(old.state())


def test_the_batch_of_another_size_is_a_step_too(trainers, state_of, random_batch):
    trainer = trainers()
    trainer.load(state_of())
    output = trainer.train_step(random_batch(1, size=1))
    assert output.logits.shape == (1, 10)


def test_loading_and_reading_a_state_copy_it(trainers, state_of, random_batch):
    trainer, state = trainers(), state_of()
    expected = bits(state)
    trainer.load(state)
    for array in (*state.values(), *trainer.state().values()):
        array[...] = 0
    assert bits(trainer.state()) == expected
    read = trainer.state()
    trainer.train_step(random_batch(1))
    assert bits(read) == expected


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_a_step_yields_loss_and_logits_from_before_the_update(
    trainers, state_of, random_batch, reference, arithmetic
):
    trainer, state, batch = (
        trainers("adam", arithmetic),
        state_of("adam", arithmetic),
        random_batch(3),
    )
    trainer.load(state)
    expected = reference(state, batch, training=True)
    output = trainer.train_step(batch)
    assert (output.loss.shape, str(output.loss.dtype)) == ((), arithmetic)
    assert (output.logits.shape, str(output.logits.dtype)) == ((4, 10), arithmetic)
    # float32 rounds to 6e-8, float64 to 1e-16; sums of up to 2,048 terms lose three digits.
    tolerance = {"float32": 1e-4, "float64": 1e-12}[arithmetic]
    np.testing.assert_allclose(output.logits, expected.logits, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(output.loss, expected.loss, rtol=tolerance)


def test_testing_uses_running_statistics_and_leaves_the_state_alone(
    trainers, state_of, random_batch, reference
):
    trainer, state, batch = (
        trainers("adam", "float64"),
        state_of("adam", "float64"),
        random_batch(4),
    )
    trainer.load(state)
    output = trainer.test_step(batch._replace(keep=None))
    expected = reference(state, batch, training=False)
    # float64 rounds to 1e-16; sums of up to 2,048 terms lose three digits.
    np.testing.assert_allclose(output.logits, expected.logits, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(output.loss, expected.loss, rtol=1e-12)
    assert bits(trainer.state()) == bits(state)


def test_a_batch_is_not_changed(trainers, state_of, random_batch):
    trainer, batch = trainers(), random_batch(5)
    trainer.load(state_of())
    trainer.train_step(batch)
    trainer.test_step(batch)
    for array, same in zip(batch, random_batch(5), strict=True):
        assert np.array_equal(array, same)


HUGE = 3e38  # the largest float32 is 3.4e38

OVERFLOWS = {
    # Positive inputs and weights: their sum is beyond the largest number.
    "output of conv1": {"conv1.weight": HUGE},
    "output of conv2": {"conv2.weight": HUGE},
    "output of conv3": {"conv3.weight": HUGE},
    "output of bn2": {"bn2.weight": HUGE},
    "output of fc1": {"fc1.weight": HUGE},
    # Finite logits, but the difference between the largest and that of class 0 is none.
    "loss": {"fc2.bias": np.array([-HUGE] * 9 + [HUGE])},
}


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("name", ["conv1.weight", "bn2.bias", "fc2.weight"])
def test_a_parameter_that_is_not_finite_is_named(trainers, state_of, random_batch, name, value):
    state = state_of()
    state[name].flat[-1] = value
    state["fc2.bias"][0] = value  # comes later
    trainer = trainers()
    trainer.load(state)
    with pytest.raises(NonFinite) as raised:
        trainer.train_step(random_batch(6))
    assert raised.value.tensor == name


@pytest.mark.parametrize("tensor", OVERFLOWS)
def test_an_overflow_is_named_by_the_first_stage_that_has_it(
    trainers, state_of, random_batch, tensor
):
    state = state_of()
    for name, value in OVERFLOWS[tensor].items():
        state[name][...] = value
    batch = random_batch(7)
    batch = batch._replace(images=np.abs(batch.images) * 2, labels=np.zeros_like(batch.labels))
    trainer = trainers()
    trainer.load(state)
    with pytest.raises(NonFinite) as raised:
        trainer.train_step(batch)
    assert raised.value.tensor == tensor
    after = trainer.state()
    kept = set(state) - set(BUFFERS)  # parameters, slots and step
    assert bits({n: after[n] for n in kept}) == bits({n: state[n] for n in kept})


def test_the_environment_is_json_and_read_back(trainers):
    environment = trainers().environment()
    assert json.loads(json.dumps(environment)) == environment
    assert environment["framework"] == "torch"
    assert environment["threads_in_force"] == torch.get_num_threads() == 1
    assert set(environment["precision"].values()) == {"ieee"}
    assert environment["deterministic_algorithms"] is True


def test_a_precision_that_is_not_in_force_would_show(trainers):
    trainer = trainers()
    matmul = torch.backends.mkldnn.matmul
    matmul.fp32_precision = "bf16"
    try:
        assert trainer.environment()["precision"]["mkldnn_matmul"] == "bf16"
    finally:
        matmul.fp32_precision = "ieee"


def test_a_device_without_float64_is_refused(monkeypatch):
    monkeypatch.setattr(module, "select_device", lambda platform: torch.device("cpu"))
    config = TrainConfig(arithmetic="float64")
    with pytest.raises(
        UserError, match=r"no float64\. Use --arithmetic float32 .*, or --device cpu"
    ):
        Trainer(config, Platform("mps"), 1)


def test_a_gpu_of_another_number_is_told_which_there_are(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert module.select_device(Platform("gpu", index=1)) == torch.device("cuda", 1)
    with pytest.raises(UserError, match=r"no gpu:2 .* only cpu, gpu:0, gpu:1\. Choose another"):
        module.select_device(Platform("gpu", index=2))
