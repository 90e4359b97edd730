"""Both loss scalers follow torch.amp.GradScaler's rules, and a run can change between them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import jax_impl.loss_scaling
import jax_impl.trainer
import torch_impl.loss_scaling
import torch_impl.trainer
from parity import mixed_precision
from parity.config import TrainConfig
from parity.mixed_precision import GROWTH_TRACKER, SCALE, initial_scale
from parity.optimizers import STEP, initial_state
from parity.platforms import Platform
from parity.weights import load, to_bytes

IMPLEMENTATIONS = {"jax": jax_impl.trainer, "torch": torch_impl.trainer}


def test_the_constants_are_gradscalers():
    theirs = torch.amp.GradScaler("cpu").state_dict()
    assert theirs["scale"] == mixed_precision.INIT_SCALE
    assert theirs["growth_factor"] == mixed_precision.GROWTH_FACTOR
    assert theirs["backoff_factor"] == mixed_precision.BACKOFF_FACTOR
    assert theirs["growth_interval"] == mixed_precision.GROWTH_INTERVAL


def torch_states(losses, start):
    scaler = torch_impl.loss_scaling.LossScaler(torch.device("cpu"))
    scaler.load(start)
    parameter = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter], 1.0)
    for loss in losses:
        optimizer.zero_grad()
        done = scaler.update((parameter * loss).sum(), optimizer)
        yield {n: a.tobytes() for n, a in scaler.state().items()}, done, parameter.tolist()


def jax_states(losses, start):
    scale, parameter = jax_impl.loss_scaling.load(start), jnp.zeros(2)
    for loss in losses:
        grads = jax.grad(lambda p, x=loss, s=scale: (p * x).sum() * s.scale)(parameter)
        grads, finite = jax_impl.loss_scaling.unscale(scale, grads)
        scale = jax_impl.loss_scaling.adjust(scale, finite)
        parameter = jnp.where(finite, parameter - grads, parameter)
        state = jax_impl.loss_scaling.state(scale)
        yield {n: a.tobytes() for n, a in state.items()}, bool(finite), parameter.tolist()


@pytest.mark.parametrize(
    ("scale", "tracker", "losses"),
    [
        (2.0**16, 0, [1.0, np.inf, 2.0, np.nan, np.inf, 1.0]),
        (2.0**16, 1998, [1.0, 1.0, 1.0, np.inf]),  # the 2,000th in a row makes the scale grow
        (2.0**127, 1999, [0.0, 0.0]),  # twice that is infinite: it stays
        (2.0**16, 5, [3e38, 1.0]),  # finite itself, too large when scaled
    ],
)
def test_both_follow_the_same_rules_step_by_step(scale, tracker, losses):
    start = {SCALE: np.float32(scale), GROWTH_TRACKER: np.int32(tracker)}
    assert list(jax_states(losses, start)) == list(torch_states(losses, start))


@pytest.mark.parametrize("framework", IMPLEMENTATIONS)
def test_an_infinite_gradient_leaves_the_update_out_and_halves_the_scale(
    framework, random_weights, random_batch
):
    config = TrainConfig(arithmetic="amp-fp16")
    trainer = IMPLEMENTATIONS[framework].Trainer(config, Platform("cpu"), 1)
    weights = random_weights(1, "float32")
    state = weights | initial_state("adam", weights) | initial_scale()
    trainer.load(state | {SCALE: np.float32(2.0**100)})  # beyond float16 in every gradient
    output = trainer.train_step(random_batch(1))
    after = trainer.state()
    assert np.isfinite(output.loss)
    assert (after[SCALE], after[GROWTH_TRACKER], after[STEP]) == (2.0**99, 0, 0)
    same = [n for n in state if n.endswith((".weight", ".bias"))]
    assert all(after[n].tobytes() == state[n].tobytes() for n in same)
    assert any((after[n] != state[n]).any() for n in state if n.endswith("running_mean"))
    trainer.load(state | {SCALE: np.float32(2.0**6)})
    trainer.train_step(random_batch(1))
    assert (trainer.state()[SCALE], trainer.state()[STEP]) == (2.0**6, 1)
    assert trainer.state()[GROWTH_TRACKER] == 1


@pytest.mark.parametrize("framework", IMPLEMENTATIONS)
def test_the_scale_goes_through_a_checkpoint_into_either_framework(
    framework, random_weights, random_batch, tmp_path
):
    config = TrainConfig(arithmetic="amp-fp16", optimizer="sgd")
    (other,) = IMPLEMENTATIONS.keys() - {framework}
    first, second = (
        IMPLEMENTATIONS[f].Trainer(config, Platform("cpu"), 1) for f in (framework, other)
    )
    weights = random_weights(1, "float32")
    first.load(weights | initial_state("sgd", weights) | initial_scale() | {SCALE: np.float32(64)})
    first.train_step(random_batch(1))
    (tmp_path / "checkpoint").write_bytes(to_bytes(first.state()))
    second.load(load(tmp_path / "checkpoint")[0])
    before, after = first.state(), second.state()
    assert {n: a.tobytes() for n, a in before.items()} == {n: a.tobytes() for n, a in after.items()}
    assert (after[SCALE], after[GROWTH_TRACKER], after[STEP]) == (64, 1, 1)


@pytest.mark.parametrize("framework", IMPLEMENTATIONS)
@pytest.mark.parametrize("arithmetic", ["amp-bf16", "amp-fp16"])
def test_mixed_precision_is_near_float32_and_is_not_float32(
    framework, arithmetic, random_weights, random_batch, reference
):
    weights = random_weights(1, "float32")
    state = weights | initial_state("sgd", weights) | initial_scale()
    trainer = IMPLEMENTATIONS[framework].Trainer(
        TrainConfig(arithmetic=arithmetic, optimizer="sgd"), Platform("cpu"), 1
    )
    batch = random_batch(1, size=16)
    trainer.load({n: a for n, a in state.items() if arithmetic == "amp-fp16" or "scale" not in n})
    trained = trainer.train_step(batch)
    expected = reference(weights, batch, training=True)
    error = np.linalg.norm(trained.logits - expected.logits) / np.linalg.norm(expected.logits)
    # A rounding is 2**-9 or 2**-12; eight layers of them, and float32 would give 1e-6.
    low, high = {"amp-bf16": (5e-4, 4e-2), "amp-fp16": (6e-5, 5e-3)}[arithmetic]
    assert low < error < high
    # Testing is float32.
    trainer.load({n: a for n, a in state.items() if arithmetic == "amp-fp16" or "scale" not in n})
    tested = trainer.test_step(batch._replace(keep=None))
    wanted = reference(weights, batch, training=False)
    # float32 rounds to 6e-8; sums of up to 2,048 terms lose three digits.
    np.testing.assert_allclose(tested.logits, wanted.logits, rtol=1e-4, atol=1e-4)
