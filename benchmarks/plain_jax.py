"""Plain JAX, as a user writes it by hand with Flax NNX: the peer that jax_impl is measured against.

Flax's own layers (its convolution is lax.conv), nnx.jit, nnx.Optimizer, and the loss fetched after
each step. JAX has no torchvision, so the batches are ours.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax import Array

from parity.config import TrainConfig
from parity.data.load import load
from parity.data.pipeline import Batch, prefetch, test_batches, train_batches


class SimpleCNN(nnx.Module):
    """3 x [conv, BatchNorm, ReLU, max-pool], dropout, two linear layers, NHWC."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.conv1 = nnx.Conv(3, 32, (3, 3), padding=1, rngs=rngs)
        self.bn1 = nnx.BatchNorm(32, momentum=0.9, rngs=rngs)
        self.conv2 = nnx.Conv(32, 64, (3, 3), padding=1, rngs=rngs)
        self.bn2 = nnx.BatchNorm(64, momentum=0.9, rngs=rngs)
        self.conv3 = nnx.Conv(64, 128, (3, 3), padding=1, rngs=rngs)
        self.bn3 = nnx.BatchNorm(128, momentum=0.9, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.fc1 = nnx.Linear(4 * 4 * 128, 256, rngs=rngs)
        self.fc2 = nnx.Linear(256, 10, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        """Return the logits (n, 10) of normalised images (n, 32, 32, 3)."""
        x = nnx.max_pool(nnx.relu(self.bn1(self.conv1(x))), (2, 2), (2, 2))
        x = nnx.max_pool(nnx.relu(self.bn2(self.conv2(x))), (2, 2), (2, 2))
        x = nnx.max_pool(nnx.relu(self.bn3(self.conv3(x))), (2, 2), (2, 2))
        x = self.dropout(x.reshape(len(x), -1))
        return self.fc2(nnx.relu(self.fc1(x)))


def loss_of(model: SimpleCNN, images: Array, labels: Array) -> tuple[Array, Array]:
    """Return the mean cross-entropy of a batch and the number of correct predictions."""
    logits = model(images)
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
    return loss, (logits.argmax(1) == labels).sum()


@nnx.jit
def update(
    model: SimpleCNN, optimizer: nnx.Optimizer, images: Array, labels: Array
) -> tuple[Array, Array]:
    """Do an update."""
    (loss, correct), grads = nnx.value_and_grad(loss_of, has_aux=True)(model, images, labels)
    optimizer.update(model, grads)
    return loss, correct


evaluate = nnx.jit(loss_of)


class Subject:
    """The peer with its data. See benchmarks.worker.Subject."""

    def __init__(self, config: TrainConfig, framework: str) -> None:
        assert framework == "jax"
        self._config = config
        self._dataset = load(config, "binary")
        self._model = SimpleCNN(nnx.Rngs(config.seed))
        self._test_model = nnx.view(self._model, deterministic=True, use_running_average=True)
        self._optimizer = nnx.Optimizer(self._model, optax.adam(config.lr), wrt=nnx.Param)
        self._epoch = 0

    def environment(self) -> dict[str, Any]:
        """Return what is timed."""
        return {"framework": "jax", "device": jax.devices()[0].device_kind}

    def batches(self) -> Iterator[Batch]:
        """Return an epoch's batches."""
        self._epoch += 1
        config = self._config
        return train_batches(
            self._dataset, seed=config.seed, epoch=self._epoch, batch_size=config.batch_size
        )

    def train_step(self, batch: Batch) -> None:
        """Do an update, and fetch the loss and the number of correct predictions."""
        images, labels = jnp.asarray(batch.images), jnp.asarray(batch.labels)
        loss, correct = update(self._model, self._optimizer, images, labels)
        loss.item()
        correct.item()

    def epochs(self, report: Callable[[float, float], None]) -> None:
        """Train and evaluate for ever."""
        while True:
            begin = time.perf_counter()
            for batch in prefetch(self.batches()):
                self.train_step(batch)
            trained = time.perf_counter()
            for batch in test_batches(self._dataset, batch_size=self._config.batch_size):
                images, labels = jnp.asarray(batch.images), jnp.asarray(batch.labels)
                loss, correct = evaluate(self._test_model, images, labels)
                loss.item()
                correct.item()
            report(trained - begin, time.perf_counter() - trained)
