"""Steps by the stretch, from images that lie on the device, are the steps from the host.

On a CPU here, where users' runs go by the step.
"""

from contextlib import nullcontext
from itertools import chain

import jax
import numpy as np
import pytest
import torch

import jax_impl.trainer
import torch_impl.trainer
from parity.architecture import initial_weights
from parity.config import TrainConfig
from parity.data import pipeline
from parity.data.dataset import subset
from parity.data.draws import Draws, train_draws
from parity.data.draws import test_draws as draws_of_test
from parity.mixed_precision import initial_scale
from parity.optimizers import initial_state
from parity.platforms import Platform
from torch_impl import graph

FRAMEWORKS = {"jax": jax_impl.trainer, "torch": torch_impl.trainer}
SIZE = 4


@pytest.fixture(autouse=True)
def _leave_x64_as_it_was():
    yield
    jax.config.update("jax_enable_x64", False)


def trainer_of(framework, arithmetic="float32"):
    config = TrainConfig(arithmetic=arithmetic, batch_size=SIZE)
    return FRAMEWORKS[framework].Trainer(config, Platform("cpu"), 1)


def both_ways(trainer, arithmetic, images):
    """Return what two epochs and an evaluation yield by the step and by the stretch, as tensors."""
    config = TrainConfig(arithmetic=arithmetic)
    assert not trainer.holds_images
    first = {
        name: array if array.dtype == np.int64 else array.astype(config.dtype)
        for name, array in initial_weights(config.seed).items()
    }
    state = first | initial_state(config.optimizer, first) | initial_scale()
    epochs = [{"seed": config.seed, "epoch": e, "batch_size": SIZE} for e in (1, 2)]

    trainer.load(state)
    host = [trainer.train_step(b) for e in epochs for b in pipeline.train_batches(images, **e)]
    tests = [trainer.test_step(b) for b in pipeline.test_batches(images, batch_size=SIZE)]
    by_step = trainer.state() | joined(host, "train") | joined(tests, "test")

    trainer.load(state)
    trainer.place(images)
    device = [unstacked(trainer.train_steps(d)) for e in epochs for d in train_draws(images, **e)]
    tests = [unstacked(trainer.test_steps(d)) for d in draws_of_test(images, batch_size=SIZE)]
    by_stretch = trainer.state() | joined(chain(*device), "train") | joined(chain(*tests), "test")
    return by_step, by_stretch


def unstacked(output):
    return [type(output)(*step) for step in zip(*output, strict=True)]


def joined(outputs, name):
    losses, logits = zip(*outputs, strict=True)
    return {f"{name} losses": np.stack(losses), f"{name} logits": np.concatenate(logits)}


def bits(tensors):
    return {name: (a.shape, str(a.dtype), a.tobytes()) for name, a in tensors.items()}


def test_exact_steps_have_equal_bits_in_jax(photographs):
    images = subset(photographs, seed=42, train_size=2 * SIZE, test_size=SIZE)
    by_step, by_stretch = both_ways(trainer_of("jax", "exact"), "exact", images)
    assert bits(by_stretch) == bits(by_step)


@pytest.mark.parametrize("arithmetic", ["float32", "float64", "exact", "amp-fp16"])
def test_steps_have_equal_bits_in_torch(photographs, arithmetic):
    images = subset(photographs, seed=42, train_size=2 * SIZE + 2, test_size=SIZE + 1)
    by_step, by_stretch = both_ways(trainer_of("torch", arithmetic), arithmetic, images)
    assert bits(by_stretch) == bits(by_step)


def test_float64_steps_mean_the_same_in_jax(photographs):
    images = subset(photographs, seed=42, train_size=2 * SIZE + 2, test_size=SIZE + 1)
    by_step, by_stretch = both_ways(trainer_of("jax", "float64"), "float64", images)
    assert by_stretch.keys() == by_step.keys()
    for name, tensor in by_step.items():
        # XLA fuses the two programs differently. Adam divides the noise of 1e-18 in the gradient of
        # a bias before BatchNorm by 1e-8, so that bias, of which nothing depends, keeps 1e-10.
        atol = 1e-8 if name.endswith("bias") or "running_mean" in name else 1e-12
        np.testing.assert_allclose(by_stretch[name], tensor, rtol=1e-9, atol=atol, err_msg=name)


def test_float32_steps_are_close_in_jax(photographs):
    images = subset(photographs, seed=42, train_size=2 * SIZE, test_size=SIZE)
    by_step, by_stretch = both_ways(trainer_of("jax", "float32"), "float32", images)
    # Nothing was updated before the first loss; float32 rounds to 6e-8, sums lose a digit.
    losses, again = by_step["train losses"], by_stretch["train losses"]
    np.testing.assert_allclose(again[0], losses[0], rtol=1e-6)
    # Adam makes steps of equal length of gradients that are noise, so the losses part.
    np.testing.assert_allclose(again, losses, rtol=1e-3)


class Replayed(graph.CapturedGradients):
    """What is a CUDA graph to its caller: a replay sets tensors that stay where they are."""

    num_replays = 0

    def __init__(self, gradients, params, like):
        self._gradients, self._graph = gradients, self
        self._draw = Draws(*(None if tensor is None else tensor.clone() for tensor in like))
        self._loss, self._logits = torch.zeros(()), torch.zeros(len(like.chosen), 10)
        self._grads = [(param, torch.zeros_like(param)) for param in params]

    def replay(self):
        Replayed.num_replays += 1
        loss, logits = self._gradients(self._draw)
        self._loss.copy_(loss)
        self._logits.copy_(logits)
        for param, grad in self._grads:
            grad.copy_(param.grad)
            param.grad = None  # a graph knows addresses, and no parameters


def test_replayed_gradients_make_equal_steps_in_torch(photographs, monkeypatch):
    monkeypatch.setattr(graph, "CapturedGradients", Replayed)
    monkeypatch.setattr(graph, "warming_up", nullcontext)
    monkeypatch.setattr(Replayed, "num_replays", 0)
    images = subset(photographs, seed=42, train_size=6 * SIZE + 2, test_size=SIZE)
    trainer = trainer_of("torch")
    assert not trainer._captures
    trainer._captures = True
    by_step, by_stretch = both_ways(trainer, "float32", images)
    assert bits(by_stretch) == bits(by_step)
    # Six whole batches an epoch, three of which come before the capture, and one of two images.
    assert Replayed.num_replays == 3 + 6
