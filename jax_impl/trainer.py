"""The training step, evaluation and state of SimpleCNN in JAX and Flax NNX."""

import os
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

from jax_impl import engines, loss_scaling, ops, resident, self_test
from jax_impl.engines import ENGINES
from jax_impl.loss_scaling import LossScale
from jax_impl.model import SimpleCNN
from jax_impl.optim import load_slots, make_optimizer, slots, without_x64
from jax_impl.precision import precision_in_force, product_bits, set_precision
from jax_impl.resident import Images
from jax_impl.weights import from_canonical, to_canonical
from parity import arithmetic
from parity.config import EngineName, TrainConfig
from parity.data.dataset import Dataset
from parity.data.draws import Draws
from parity.data.pipeline import Batch, lookup_table
from parity.errors import UserError
from parity.mixed_precision import initial_scale
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


class State(NamedTuple):
    """Everything that an update changes."""

    params: nnx.State
    stats: nnx.State
    opt_state: optax.OptState
    loss_scale: LossScale | None
    """Of float16 alone."""


def left_out(old: State, new: State) -> Array:
    """Return whether the update between two states was left out: that alone lowers the scale."""
    if old.loss_scale is None or new.loss_scale is None:
        return jnp.array(False)
    return new.loss_scale.scale < old.loss_scale.scale


def cross_entropy(logits: Array, labels: Array) -> Array:
    """Return the mean cross-entropy of a batch, in nats. Shape ()."""
    wide = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    return optax.softmax_cross_entropy_with_integer_labels(wide, labels).mean()


def capability(device: Any) -> tuple[int, int] | None:
    """Return the compute capability of an NVIDIA GPU (jax.Device); None of any other device."""
    found = re.fullmatch(r"(\d+)\.(\d+)", str(getattr(device, "compute_capability", "")))
    return (int(found.group(1)), int(found.group(2))) if found else None


def kernels_in_force(device: Any) -> dict[str, bool | None]:
    """Return whether kernels are deterministic and timed, by XLA_FLAGS; None where XLA has neither.

    XLA shows no settings, but it ends a process over a flag that it does not know.
    """
    if device.platform != "gpu":
        return {"deterministic_ops": None, "xla_autotune": None}
    flags = dict(re.findall(r"--(xla_gpu_\w+)=(\w+)", os.environ.get("XLA_FLAGS", "")))
    names = ("xla_gpu_deterministic_ops", "xla_gpu_exclude_nondeterministic_ops")
    return {
        "deterministic_ops": any(flags.get(name) == "true" for name in names),
        "xla_autotune": flags.get("xla_gpu_autotune_level") != "0",
    }


class Trainer:
    """One SimpleCNN with its optimizer, on one device. See parity.trainer.Trainer."""

    def __init__(self, config: TrainConfig, platform: Platform, threads: int) -> None:
        set_precision(config.arithmetic)
        jax.config.update("jax_enable_x64", config.needs_float64)
        self._config = config
        self._device = select_device(platform)
        known = arithmetic.this_machines(platform, capability(self._device))
        if (reason := arithmetic.why_not("jax", known, config.to_json())) is not None:
            raise UserError(reason)
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
        bits = arithmetic.EMULATED.get(config.arithmetic)
        make_model = partial(SimpleCNN, self._dtype, exact, engine, operand_bits=bits)
        self._model = make_model(amp=jnp.dtype(config.amp) if config.amp else None)
        self._graph, params, stats = nnx.split(self._model, nnx.Param, nnx.BatchStat)
        test_model = make_model()
        test_model.eval()
        self._test_graph = nnx.graphdef(test_model)
        scale = loss_scaling.load(initial_scale()) if config.amp == "float16" else None
        self._state = State(params, stats, self._optimizer.init(params), scale)
        self._num_steps = 0
        self._update = jax.jit(self._update_step)
        self._evaluate = jax.jit(self._evaluate_step)
        # On CPUs a convolution's gradient in a scan takes 60 times as long.
        self.holds_images = self._device.platform != "cpu"
        self._train_images: Images | None = None
        self._test_images: Images | None = None
        self._update_all = jax.jit(self._update_steps)
        self._evaluate_all = jax.jit(self._evaluate_steps)

    def environment(self) -> dict[str, Any]:
        """Return what the framework says of itself and its device, read back, as JSON values."""
        on_gpu = self._device.platform == "gpu"
        return {
            "framework": "jax",
            "device": self._device.device_kind,
            "capability": ".".join(map(str, capability(self._device) or ())) or None,
            "driver": nvidia_driver() if on_gpu else None,
            "runtime": self._device.client.platform_version,
            "threads_in_force": self._threads,
            "precision": precision_in_force(),
            "product_bits": product_bits(self._model)
            if "dot" not in self._config.exact_operations
            else None,
            "amp": self._config.amp,
            "engine": self._engine,
            **kernels_in_force(self._device),
            "x64": jnp.zeros((), float).dtype == jnp.float64,
        }

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over weights, buffers and optimizer state by canonical name."""
        params = from_canonical(self._state.params, state)
        stats = from_canonical(self._state.stats, state)
        opt_state = load_slots(self._config.optimizer, self._optimizer, params, state)
        scale = None if self._state.loss_scale is None else loss_scaling.load(state)
        self._state = State(params, stats, opt_state, scale)
        self._num_steps = int(state[STEP])

    def state(self) -> dict[str, np.ndarray]:
        """Return copies of weights, buffers and optimizer state by canonical name."""
        return {
            **to_canonical(self._state.params),
            **to_canonical(self._state.stats),
            **slots(self._config.optimizer, self._state.opt_state),
            **(loss_scaling.state(scale) if (scale := self._state.loss_scale) else {}),
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
        def loss_of(params: nnx.State) -> tuple[Array, tuple[Array, Array, nnx.State]]:
            model = nnx.merge(self._graph, params, state.stats, copy=True)
            logits = model(images, keep)
            loss = self._cross_entropy(logits, labels)
            scaled = loss if state.loss_scale is None else loss * state.loss_scale.scale
            return scaled, (loss, logits, nnx.state(model, nnx.BatchStat))

        gradient = jax.grad(loss_of, has_aux=True)
        grads, (loss, logits, stats) = gradient(state.params)
        finite = None
        if state.loss_scale is not None:
            grads, finite = loss_scaling.unscale(state.loss_scale, grads)
        updates, opt_state = self._optimizer.update(grads, state.opt_state, state.params)
        params: Any = self._apply(state.params, updates)
        if state.loss_scale is None or finite is None:
            return State(params, stats, opt_state, None), loss, logits
        done, left_out = (params, opt_state), (state.params, state.opt_state)
        kept: Any = jax.tree.map(partial(jnp.where, finite), done, left_out)
        scale = loss_scaling.adjust(state.loss_scale, finite)
        return State(*(kept[0], stats, kept[1]), scale), loss, logits

    def _evaluate_step(self, state: State, images: Array, labels: Array) -> tuple[Array, Array]:
        model = nnx.merge(self._test_graph, state.params, state.stats)
        logits = model(images)
        return self._cross_entropy(logits, labels), logits

    def _update_steps(
        self, state: State, images: Images, draws: Draws
    ) -> tuple[State, Array, Array, Array]:
        """Return state, losses and logits after a stretch, and how many updates it left out."""

        def step(state: State, draw: Draws) -> tuple[State, tuple[Array, Array, Array]]:
            pixels, labels, keep = resident.batch(images, draw)
            new, loss, logits = self._update_step(state, pixels.astype(self._dtype), labels, keep)
            return new, (loss, logits.astype(self._dtype), left_out(state, new))

        state, (losses, logits, skipped) = jax.lax.scan(step, state, draws)
        return state, losses, logits, skipped.sum()

    def _evaluate_steps(self, state: State, images: Images, draws: Draws) -> tuple[Array, Array]:
        def step(_: None, draw: Draws) -> tuple[None, tuple[Array, Array]]:
            pixels, labels = resident.batch(images, draw)[:2]
            return None, self._evaluate_step(state, pixels.astype(self._dtype), labels)

        return jax.lax.scan(step, None, draws)[1]

    def train_step(self, batch: Batch) -> Output:
        """Do one update and return the loss and the logits that it was made from.

        Raises:
            NonFinite: If the loss is NaN or infinite; the parameters were not updated. A gradient
                of a scaled loss may be so: then the update is left out, and the scale halved.
        """
        images, labels, keep = self._tensors(batch)
        state, loss, logits = self._update(self._state, images, labels, keep)
        if not jnp.isfinite(loss):
            raise NonFinite(self._first_nonfinite(images, keep))
        old, self._state = self._state, state
        self._num_steps += 1 - int(left_out(old, state))
        return Output(np.asarray(loss), np.asarray(logits, self._dtype))

    def test_step(self, batch: Batch) -> Output:
        """Return loss and logits with running statistics and without dropout."""
        images, labels, _ = self._tensors(batch)
        loss, logits = self._evaluate(self._state, images, labels)
        return Output(np.asarray(loss), np.asarray(logits))

    def place(self, dataset: Dataset) -> None:
        """Lay the images on the device, for `train_steps` and `test_steps`."""
        table = lookup_table(dataset)
        self._train_images = resident.place(dataset.train_images, dataset.train_labels, table)
        self._test_images = resident.place(dataset.test_images, dataset.test_labels, table)

    def train_steps(self, draws: Draws) -> Output:
        """Do an update for each step; a loss that is NaN or infinite stops none of them."""
        assert self._train_images is not None
        self._state, losses, logits, skipped = self._update_all(
            self._state, self._train_images, draws
        )
        self._num_steps += len(draws.chosen) - int(skipped)
        return Output(np.asarray(losses), np.asarray(logits))

    def test_steps(self, draws: Draws) -> Output:
        """Return loss and logits of each step with running statistics and without dropout."""
        assert self._test_images is not None
        losses, logits = self._evaluate_all(self._state, self._test_images, draws)
        return Output(np.asarray(losses), np.asarray(logits))

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
