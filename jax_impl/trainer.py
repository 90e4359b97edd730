"""The training step, evaluation and state of SimpleCNN in JAX and Flax NNX."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax import Array

from jax_impl import engines, ops, self_test
from jax_impl.engines import ENGINES
from jax_impl.model import SimpleCNN
from jax_impl.optim import load_slots, make_optimizer, slots, without_x64
from jax_impl.weights import from_canonical, to_canonical
from parity.config import EngineName, TrainConfig
from parity.data.pipeline import Batch
from parity.errors import UserError
from parity.optimizers import STEP
from parity.platforms import Platform, nvidia_driver
from parity.trainer import NonFinite, Output


def select_device(platform: Platform) -> Any:
    """Return JAX's device (jax.Device) of a platform.

    Raises:
        UserError: If there is none here; says which devices are, and what to install.
    """
    try:
        return jax.devices(platform.kind)[platform.index]
    except IndexError:
        remedy = "Choose another index"
    except RuntimeError:
        extra = {"gpu": "jax-cuda", "tpu": "tpu"}[platform.kind]
        remedy = f"Install JAX for it with `pip install '.[{extra}]'`"
    available = [f"gpu:{d.id}" if d.platform == "gpu" else d.platform for d in jax.devices()]
    raise UserError(
        f"JAX sees no {platform.name} on this machine, only {', '.join(available)}. "
        f"{remedy}, or choose one of these."
    )


def precision_in_force() -> dict[str, str]:
    """Return the precision of float32 products, read back: "highest" is IEEE float32."""
    product = jax.jit(jnp.matmul).lower(jnp.ones((2, 2)), jnp.ones((2, 2))).as_text()
    found = re.search(r"precision = \[(\w+), \1\]", product)
    return {"matmul": found.group(1).lower() if found else "default"}


class State(NamedTuple):
    """Everything that an update changes."""

    params: nnx.State
    stats: nnx.State
    opt_state: optax.OptState


def cross_entropy(logits: Array, labels: Array) -> Array:
    """Return the mean cross-entropy of a batch, in nats. Shape ()."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


class Trainer:
    """One SimpleCNN with its optimizer, on one device. See parity.trainer.Trainer."""

    def __init__(self, config: TrainConfig, platform: Platform, threads: int) -> None:
        jax.config.update("jax_default_matmul_precision", "highest")
        jax.config.update("jax_enable_x64", config.needs_float64)
        self._config = config
        self._device = select_device(platform)
        if config.needs_float64 and platform.kind == "tpu":
            raise UserError(
                "A TPU has no IEEE float64. Use --arithmetic float32 without --exact-only, or "
                "--device cpu."
            )
        jax.config.update("jax_default_device", self._device)
        self._dtype = jnp.dtype(config.dtype)
        self._threads = threads
        exact = config.exact_operations
        self._engine: EngineName | None = None
        if "dot" in exact:
            self._engine = config.engine or engines.choose(self._device)
        engine = ENGINES[self._engine or "float64"]
        if exact:
            self_test.check(self._device, engine)
        self._cross_entropy = ops.cross_entropy if "softmax" in exact else cross_entropy
        optimizer = make_optimizer(config.optimizer, config.lr, exact="optimizer" in exact)
        if exact and "optimizer" not in exact:
            optimizer = without_x64(optimizer)
        self._optimizer = optimizer
        self._apply = (
            partial(jax.tree.map, ops.descend) if "optimizer" in exact else optax.apply_updates
        )
        model = SimpleCNN(self._dtype, exact, engine)
        self._graph, params, stats = nnx.split(model, nnx.Param, nnx.BatchStat)
        model.eval()
        self._test_graph = nnx.graphdef(model)
        self._state = State(params, stats, self._optimizer.init(params))
        self._num_steps = 0
        self._update = jax.jit(self._update_step)
        self._evaluate = jax.jit(self._evaluate_step)

    def environment(self) -> dict[str, Any]:
        """Return what the framework says of itself and its device, read back, as JSON values."""
        on_gpu = self._device.platform == "gpu"
        return {
            "framework": "jax",
            "device": self._device.device_kind,
            "capability": getattr(self._device, "compute_capability", None),
            "driver": nvidia_driver() if on_gpu else None,
            "runtime": self._device.client.platform_version,
            "threads_in_force": self._threads,
            "precision": precision_in_force(),
            "engine": self._engine,
            "x64": jnp.zeros((), float).dtype == jnp.float64,
        }

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over weights, buffers and optimizer state by canonical name."""
        params = from_canonical(self._state.params, state)
        stats = from_canonical(self._state.stats, state)
        opt_state = load_slots(self._config.optimizer, self._optimizer, params, state)
        self._state = State(params, stats, opt_state)
        self._num_steps = int(state[STEP])

    def state(self) -> dict[str, np.ndarray]:
        """Return copies of weights, buffers and optimizer state by canonical name."""
        return {
            **to_canonical(self._state.params),
            **to_canonical(self._state.stats),
            **slots(self._config.optimizer, self._state.opt_state),
            STEP: np.array(self._num_steps, np.int64),
        }

    def _tensors(self, batch: Batch) -> tuple[Array, Array, Array | None]:
        images = jnp.asarray(batch.images, self._dtype)
        labels = jnp.asarray(batch.labels)
        keep = None if batch.keep is None else jnp.asarray(batch.keep)
        return images, labels, keep

    def _update_step(
        self, state: State, images: Array, labels: Array, keep: Array | None
    ) -> tuple[State, Array, Array]:
        def loss_of(params: nnx.State) -> tuple[Array, tuple[Array, nnx.State]]:
            model = nnx.merge(self._graph, params, state.stats, copy=True)
            logits = model(images, keep)
            return self._cross_entropy(logits, labels), (logits, nnx.state(model, nnx.BatchStat))

        gradient = jax.value_and_grad(loss_of, has_aux=True)
        (loss, (logits, stats)), grads = gradient(state.params)
        updates, opt_state = self._optimizer.update(grads, state.opt_state, state.params)
        params: Any = self._apply(state.params, updates)
        return State(params, stats, opt_state), loss, logits

    def _evaluate_step(self, state: State, images: Array, labels: Array) -> tuple[Array, Array]:
        model = nnx.merge(self._test_graph, state.params, state.stats)
        logits = model(images)
        return self._cross_entropy(logits, labels), logits

    def train_step(self, batch: Batch) -> Output:
        """Do one update and return the loss and the logits that it was made from.

        Raises:
            NonFinite: If the loss is NaN or infinite; the parameters were not updated.
        """
        images, labels, keep = self._tensors(batch)
        state, loss, logits = self._update(self._state, images, labels, keep)
        if not jnp.isfinite(loss):
            raise NonFinite(self._first_nonfinite(images, keep))
        self._state = state
        self._num_steps += 1
        return Output(np.asarray(loss), np.asarray(logits))

    def test_step(self, batch: Batch) -> Output:
        """Return loss and logits with running statistics and without dropout."""
        images, labels, _ = self._tensors(batch)
        loss, logits = self._evaluate(self._state, images, labels)
        return Output(np.asarray(loss), np.asarray(logits))

    def _first_nonfinite(self, images: Array, keep: Array | None) -> str:
        for name, parameter in to_canonical(self._state.params).items():
            if not np.isfinite(parameter).all():
                return name
        model = nnx.merge(self._graph, *self._state[:2], copy=True)
        x = images
        for name, stage in model.stages(keep).items():
            x = stage(x)
            if not jnp.isfinite(x).all():
                return f"output of {name}"
        return "loss"
