"""The sharp test of meaning: in float64 both frameworks walk the same path.

Rounding is 1e-16 there, so whatever the two implementations do differently on purpose or by mistake
(a biased variance, another place of eps, a transposed flatten) stands out by orders of magnitude.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jax_impl.model
import jax_impl.trainer
import torch_impl.trainer
from parity.architecture import PARAMETERS, initial_weights
from parity.config import TrainConfig
from parity.data import load
from parity.data.dataset import Dataset, subset
from parity.data.pipeline import train_batches
from parity.optimizers import ADAM_BETAS, EPS, RMSPROP_ALPHA, initial_state, slot_name
from parity.platforms import Platform

BATCH_SIZE = 32
STEPS_PER_EPOCH = 10  # nine whole batches and one of 8 images
OPTIMIZERS = ("adam", "rmsprop", "sgd")

RTOL = 1e-9
"""Relative L2 difference of a tensor after 50 steps. Rounding gave 5.2e-10 at most (RMSprop on
digits; 1.6e-10 on CIFAR-10), the mildest planted fault below 1e-5 after 10 steps. Measured with
torch 2.14.1, jax 0.10.2, AVX-512, 2026-11-30."""

CANCELLED = {f"conv{i}.bias" for i in (1, 2, 3)} | {f"bn{i}.running_mean" for i in (1, 2, 3)}
CANCELLED_RTOL = 1e-7
"""BatchNorm subtracts the mean, so it cancels the bias of the convolution before it: the bias's
gradient is exactly zero in mathematics and pure rounding noise, near 1e-16, in a computer. Adam and
RMSprop divide that noise by eps = 1e-8 and so move the bias, and with it the running mean, by up to
lr * 1e-8 a step, each framework its own way. It gave 8.0e-9 on digits and 1.5e-9 on CIFAR-10."""


@pytest.fixture(autouse=True, scope="module")
def _leave_x64_as_it_was():
    yield
    jax.config.update("jax_enable_x64", False)


def trajectory(
    framework, optimizer, images: Dataset, *, num_steps, arithmetic="float64", weights=None
):
    """Return the canonical state after `num_steps` steps, crops, flips and dropout on."""
    implementation = {"jax": jax_impl.trainer, "torch": torch_impl.trainer}[framework]
    config = TrainConfig(optimizer=optimizer, arithmetic=arithmetic, batch_size=BATCH_SIZE)
    size = (STEPS_PER_EPOCH - 1) * BATCH_SIZE + 8
    dataset = subset(images, seed=config.seed, train_size=size, test_size=1)
    trainer = implementation.Trainer(config, Platform("cpu"), 2)
    first = {
        name: array if array.dtype == np.int64 else array.astype(arithmetic)
        for name, array in (weights or initial_weights(config.seed)).items()
    }
    trainer.load(first | initial_state(optimizer, first))
    done = 0
    for epoch in range(1, 1 + -(-num_steps // STEPS_PER_EPOCH)):
        batches = train_batches(dataset, seed=config.seed, epoch=epoch, batch_size=BATCH_SIZE)
        for batch in batches:
            if done < num_steps:
                trainer.train_step(batch)
                done += 1
    assert done == num_steps
    return trainer.state()


def differences(a, b) -> dict[str, float]:
    """Return each tensor's relative L2 difference.

    The optimizer's slots of a cancelled bias hold nothing but noise, which has no digits to agree
    in: their difference is relative to the slot of the same layer's weights.
    """
    assert {n: (x.shape, x.dtype) for n, x in a.items()} == {
        n: (x.shape, x.dtype) for n, x in b.items()
    }
    noise = {n for n in b if n.startswith("optimizer.") and ".conv" in n and n.endswith(".bias")}
    found = {}
    for name in b:
        reference = name.replace(".bias", ".weight") if name in noise else name
        norm = float(np.linalg.norm(b[reference]))
        found[name] = float(np.linalg.norm(a[name] - b[name])) / (norm or 1.0)
    return found


def too_large(found: dict[str, float]) -> dict[str, float]:
    return {n: x for n, x in found.items() if x > (CANCELLED_RTOL if n in CANCELLED else RTOL)}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_weights_buffers_and_slots_agree_after_50_steps(optimizer, photographs):
    torch_state, jax_state = (
        trajectory(framework, optimizer, photographs, num_steps=50)
        for framework in ("torch", "jax")
    )
    assert too_large(differences(jax_state, torch_state)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_weights_buffers_and_slots_agree_after_50_steps_on_cifar10(optimizer, cifar10_folder):
    images = load.load(TrainConfig(data_dir=cifar10_folder), "tfds")
    torch_state, jax_state = (
        trajectory(framework, optimizer, images, num_steps=50) for framework in ("torch", "jax")
    )
    assert too_large(differences(jax_state, torch_state)) == {}


@pytest.fixture(scope="module")
def torch_after_one_epoch(photographs):
    """Ten steps by each optimizer, the last partial batch included."""
    return {o: trajectory("torch", o, photographs, num_steps=10) for o in OPTIMIZERS}


def biased_variance(monkeypatch):
    monkeypatch.setattr(jax_impl.model, "unbiased", lambda var, count: var)


def transposed_flatten(monkeypatch):
    monkeypatch.setattr(jax_impl.model, "flatten", lambda x: x.reshape(len(x), -1))


def split_ties(monkeypatch):
    def max_pool(x):
        n, height, width, channels = x.shape
        return x.reshape(n, height // 2, 2, width // 2, 2, channels).max((2, 4))

    monkeypatch.setattr(jax_impl.model, "max_pool", max_pool)


def padded_batch_mean(monkeypatch):
    def cross_entropy(logits, labels):
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        return losses.sum() / BATCH_SIZE

    monkeypatch.setattr(jax_impl.trainer, "cross_entropy", cross_entropy)


def eps_inside_the_root(monkeypatch):
    def make_optimizer(name, lr, *, exact):
        assert not exact
        if name == "adam":
            return optax.adam(lr, *ADAM_BETAS, eps=0.0, eps_root=EPS)
        return optax.rmsprop(lr, decay=RMSPROP_ALPHA, eps=EPS, eps_in_sqrt=True)

    monkeypatch.setattr(jax_impl.trainer, "make_optimizer", make_optimizer)


@pytest.mark.parametrize(
    ("plant", "optimizer"),
    [
        (biased_variance, "sgd"),
        (transposed_flatten, "sgd"),
        (padded_batch_mean, "sgd"),
        (eps_inside_the_root, "adam"),
        (eps_inside_the_root, "rmsprop"),
    ],
)
def test_a_planted_fault_is_caught(
    plant, optimizer, monkeypatch, torch_after_one_epoch, photographs
):
    plant(monkeypatch)
    faulty = trajectory("jax", optimizer, photographs, num_steps=10)
    found = too_large(differences(faulty, torch_after_one_epoch[optimizer]))
    assert found
    # Far beyond the tolerance, so that the test above could not pass by luck.
    assert max(found.values()) > 1e-5


def with_ties(photographs: Dataset) -> tuple[Dataset, dict[str, np.ndarray]]:
    """Return images and weights that make windows of the max-pool tie again and again.

    Natural windows tie only where their inputs are equal, and then the rule makes no difference.
    Here pixels are -1 or 1 and the first weights multiples of 1/8, so unlike inputs tie too.
    """
    binary = np.where(photographs.train_images > 127, np.uint8(255), np.uint8(0))
    images = replace(photographs, train_images=binary, mean=(0.5,) * 3, std=(0.5,) * 3)
    weights = initial_weights(42)
    for name in ("conv1.weight", "conv1.bias"):
        weights[name] = np.round(weights[name] * 8) / np.float32(8)
    return images, weights


@pytest.mark.parametrize("plant", [None, split_ties])
def test_ties_go_to_the_first_element(plant, monkeypatch, photographs):
    if plant:
        plant(monkeypatch)
    images, weights = with_ties(photographs)
    torch_state, jax_state = (
        trajectory(framework, "sgd", images, num_steps=1, weights=weights)
        for framework in ("torch", "jax")
    )
    found = too_large(differences(jax_state, torch_state))
    assert bool(found) == bool(plant)
    if plant:
        assert max(found.values()) > 1e-5


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_float32_gradients_of_the_first_step_are_near_float64(framework, photographs):
    # SGD's buffer after one step is the gradient itself.
    single, double = (
        trajectory(framework, "sgd", photographs, num_steps=1, arithmetic=arithmetic)
        for arithmetic in ("float32", "float64")
    )
    errors = {}
    for name in PARAMETERS:
        slot = slot_name("momentum_buffer", name)
        # A cancelled bias has no gradient but noise: see CANCELLED_RTOL.
        scale = double[slot.replace(".bias", ".weight") if name in CANCELLED else slot]
        errors[name] = np.linalg.norm(single[slot] - double[slot]) / np.linalg.norm(scale)
    # float32 rounds to 6e-8; sums of up to 32,768 terms in six layers lose a digit and a half.
    assert {name: error for name, error in errors.items() if error > 1e-5} == {}


def test_float32_products_are_not_shortened(photographs):
    """1 + 2**-12 is lost in TF32 and bfloat16, and kept in IEEE float32."""
    for framework in ("jax", "torch"):
        trajectory(framework, "sgd", photographs, num_steps=1, arithmetic="float32")
    x = jnp.full((64, 64), 1 + 2.0**-12, jnp.float32)
    assert float((x @ jnp.eye(64))[0, 0]) == 1 + 2.0**-12
    assert set(torch_impl.trainer.precision_in_force().values()) == {"ieee"}
