import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from jax_impl.model import SimpleCNN
from jax_impl.optim import load_slots, make_optimizer, slots
from jax_impl.weights import from_canonical
from parity.architecture import PARAMETERS
from parity.optimizers import SLOTS, STEP, initial_state, slot_name

LR = 0.01


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def grads_of(seed: int, count: int = 3) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.normal(0, 1, (4, 3)) for _ in range(count)]


def steps(name: str, weight: np.ndarray, state, grads: list[np.ndarray]) -> np.ndarray:
    optimizer = make_optimizer(name, LR)  # pyright: ignore[reportArgumentType]
    params = jnp.asarray(weight)
    for grad in grads:
        updates, state = optimizer.update(jnp.asarray(grad), state, params)
        params = optax.apply_updates(params, updates)
    return np.asarray(params)


@pytest.mark.parametrize("name", SLOTS)
def test_an_update_is_the_published_formula(name, updated):
    weight, grads = grads_of(1)[0], grads_of(2)
    found = steps(name, weight, make_optimizer(name, LR).init(jnp.asarray(weight)), grads)
    zeros = {slot: np.zeros_like(weight) for slot in SLOTS[name]}
    # Three updates of a few operations each: float64 rounds each to 1e-16.
    np.testing.assert_allclose(found, updated(name, weight, grads, lr=LR, **zeros), rtol=1e-13)


@pytest.fixture(scope="module")
def params() -> nnx.State:
    with jax.enable_x64(True):
        return nnx.state(SimpleCNN(jnp.float64), nnx.Param)


def random_state(name: str, seed: int, dtype: str) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        slot_name(slot, parameter): np.abs(random.normal(0, 1, tensor.shape)).astype(dtype)
        for slot in SLOTS[name]
        for parameter, tensor in PARAMETERS.items()
    }


@pytest.mark.parametrize("name", SLOTS)
def test_a_loaded_state_goes_on_with_its_slots_and_its_step(name, params, random_weights, updated):
    # fc2.bias stands for all: its Flax layout is the canonical one.
    optimizer = make_optimizer(name, LR)
    state = random_state(name, 3, "float64")
    opt_state = load_slots(name, optimizer, params, state | {STEP: np.array(7, np.int64)})
    weights = random_weights(1, "float64")
    current = from_canonical(params, weights)
    grads = grads_of(4)
    for grad in grads:
        gradient = jax.tree.map(lambda x, g=grad: jnp.full_like(x, g[0, 0]), current)
        updates, opt_state = optimizer.update(gradient, opt_state, current)
        current = optax.apply_updates(current, updates)
    found = np.asarray(current["fc2"]["bias"][...])
    expected = updated(
        name,
        weights["fc2.bias"],
        [np.full(10, grad[0, 0]) for grad in grads],
        lr=LR,
        step=7,
        **{slot: state[slot_name(slot, "fc2.bias")] for slot in SLOTS[name]},
    )
    np.testing.assert_allclose(found, expected, rtol=1e-13)  # as above


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SLOTS)
def test_slots_come_back_to_the_bit(name, dtype):
    params = nnx.state(SimpleCNN(dtype), nnx.Param)
    state = random_state(name, 5, dtype)
    step = {STEP: np.array(3, np.int64)}
    opt_state = load_slots(name, make_optimizer(name, LR), params, state | step)
    found = slots(name, opt_state)
    assert {n: (a.dtype, a.shape, a.tobytes()) for n, a in found.items()} == {
        n: (a.dtype, a.shape, a.tobytes()) for n, a in state.items()
    }


@pytest.mark.parametrize("name", SLOTS)
def test_the_slots_are_all_that_the_optimizer_keeps(name, params):
    opt_state = make_optimizer(name, LR).init(params)
    arrays = [leaf for leaf in jax.tree.leaves(opt_state) if leaf.ndim]
    assert len(arrays) == len(SLOTS[name]) * len(PARAMETERS)


def test_the_first_state_fits_every_optimizer(params, random_weights):
    for name in SLOTS:
        optimizer = make_optimizer(name, LR)
        state = initial_state(name, random_weights(1, "float64"))
        loaded = load_slots(name, optimizer, params, state)
        # Optax's own beginning is zeros too.
        own = optimizer.init(params)
        assert jax.tree.structure(loaded) == jax.tree.structure(own)
        for a, b in zip(jax.tree.leaves(loaded), jax.tree.leaves(own), strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
