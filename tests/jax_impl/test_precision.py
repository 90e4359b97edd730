import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jax_impl import precision
from jax_impl import trainer as module
from jax_impl.model import SimpleCNN
from jax_impl.trainer import Trainer
from parity import operands
from parity.arithmetic import EMULATED, OPERAND_BITS
from parity.config import TrainConfig
from parity.errors import UserError
from parity.mixed_precision import OUTPUTS, POLICY
from parity.optimizers import initial_state
from parity.platforms import Platform

_CHOSEN = """
00000001 007fffff 80000fff 00001000 00003000 7f7fffff ff7fffff 7f800000 ff800000 7f800001 ffc00001
80000000 3f801000 3f803000 3f808000 3f818000
"""
_RANDOM = np.random.default_rng(0).integers(0, 2**32, 50_000, dtype=np.uint32)
EDGES = np.array([*(int(word, 16) for word in _CHOSEN.split()), *_RANDOM], np.uint32).view(
    np.float32
)
"""Subnormals, the largest, infinities, NaN, ties to even and to odd; then any bits at all."""


@pytest.fixture(autouse=True)
def _leave_precision_as_it_was():
    yield
    precision.set_precision("float32")
    jax.config.update("jax_enable_x64", False)


def make_trainer(**settings) -> Trainer:
    return Trainer(TrainConfig(**settings), Platform("cpu"), 1)


@pytest.mark.parametrize("bits", EMULATED.values())
@pytest.mark.parametrize("compiled", [True, False])
def test_rounding_is_that_of_the_definition_to_the_bit(bits, compiled):
    function = jax.jit(precision.round_operand, static_argnums=1)
    rounded = (function if compiled else precision.round_operand)(jnp.asarray(EDGES), bits)
    assert np.asarray(rounded).tobytes() == operands.round_operand(EDGES, bits).tobytes()


@pytest.mark.parametrize("mode", ["float32", "float64", "amp-bf16", "amp-fp16", *EMULATED])
def test_a_mode_is_what_comes_out_of_its_products(mode):
    environment = make_trainer(arithmetic=mode).environment()
    assert set(environment["product_bits"].values()) == {OPERAND_BITS[mode]}


def test_measuring_leaves_the_model_alone():
    trainer = make_trainer(arithmetic="amp-bf16")
    trainer.environment()
    state = nnx.state(trainer._model, nnx.Param)
    assert all(
        not np.any(np.asarray(x[...])) for n, x in nnx.to_flat_state(state) if "bn" not in n[0]
    )


@pytest.mark.parametrize("layer", ["fc1", "conv1", "conv2"])
@pytest.mark.parametrize("bits", EMULATED.values())
def test_emulation_rounds_the_operands_of_all_three_products_and_nothing_else(layer, bits):
    # In float64 sums are exact to 1e-16, so any operand that is not rounded would show at 1e-4.
    random = np.random.default_rng(0)
    shape = {"fc1": (4, 2048), "conv1": (4, 8, 8, 3), "conv2": (4, 8, 8, 32)}[layer]

    def forward(dtype, operand_bits, x, w, b):
        part = getattr(SimpleCNN(dtype, operand_bits=operand_bits), layer)
        part.kernel[...], part.bias[...] = w, b
        return part(x)

    part = getattr(SimpleCNN(jnp.float32), layer)
    w_shape, b_shape = part.kernel[...].shape, part.bias[...].shape
    x, w, b = (random.normal(size=s).astype(np.float32) for s in (shape, w_shape, b_shape))
    with jax.default_matmul_precision("highest"):
        y, vjp = jax.vjp(lambda *a: forward(jnp.float32, bits, *a), x, w, b)
        g = random.normal(size=y.shape).astype(np.float32)
        found = (y, *vjp(jnp.asarray(g)))
    rounded = [operands.round_operand(a, bits).astype(np.float64) for a in (x, w, g)]
    with jax.enable_x64(True):
        wide, vjp = jax.vjp(
            lambda *a: forward(jnp.float64, None, *a), rounded[0], rounded[1], b.astype(np.float64)
        )
        dx, dw, _ = vjp(jnp.asarray(rounded[2]))
        wanted = [np.asarray(a) for a in (wide, dx, dw)]
    wanted.append(g.astype(np.float64).sum(tuple(range(g.ndim - 1))))
    for array, expected in zip(found, wanted, strict=True):
        # float32 sums of up to 2,048 terms; an operand not rounded is off by 1e-4 or more.
        error = np.linalg.norm(np.asarray(array, np.float64) - expected) / np.linalg.norm(expected)
        assert error < 2e-6


@pytest.mark.parametrize("mode", ["amp-bf16", "amp-fp16"])
def test_flax_follows_the_policy(mode):
    trainer = make_trainer(arithmetic=mode)
    low = jnp.dtype({"amp-bf16": "bfloat16", "amp-fp16": "float16"}[mode])
    x = jnp.ones((2, 32, 32, 3))
    for name, stage in trainer._model.stages(jnp.ones((2, 2048), bool)).items():
        x = stage(x)
        wanted = OUTPUTS[name.rstrip("0123456789")]
        assert x.dtype == (low if wanted == "low" else jnp.float32), name
    assert trainer._cross_entropy(x, jnp.array([1, 2])).dtype == POLICY["loss"]
    assert {a.dtype for a in jax.tree.leaves(trainer._state.params)} == {jnp.dtype("float32")}


def test_batch_norm_computes_in_float32_whatever_comes_in():
    norm = SimpleCNN(jnp.float32, amp=jnp.bfloat16).bn1
    x = jnp.asarray(np.random.default_rng(0).normal(3, 1, (4, 8, 8, 32)), jnp.bfloat16)
    y = norm(x)
    mean = np.asarray(norm.mean[...]) / 0.1
    # bfloat16 sums of 256 terms would be off by 1e-2.
    np.testing.assert_allclose(mean, np.asarray(x, np.float64).mean((0, 1, 2)), rtol=1e-6)
    assert y.dtype == jnp.bfloat16
    assert (
        np.asarray(y).tobytes()
        == np.asarray(
            SimpleCNN(jnp.float32).bn1(x.astype(jnp.float32)).astype(jnp.bfloat16)
        ).tobytes()
    )


@pytest.mark.parametrize(("mode", "named"), [("tf32", "high"), ("bf16", "default")])
def test_a_permission_is_read_back_from_what_is_compiled(mode, named):
    precision.set_precision(mode)
    assert precision.precision_in_force() == {"matmul": named}


def test_what_this_device_cannot_do_is_refused_with_the_reason():
    with pytest.raises(UserError, match="TF32 is of NVIDIA GPUs, and this is cpu"):
        make_trainer(arithmetic="tf32")
    with pytest.raises(UserError, match=r"no other kernels\. Use --deterministic"):
        make_trainer(deterministic=False)


@pytest.mark.parametrize(("capability", "refused"), [("7.5", True), ("8.0", False)])
def test_a_gpus_capability_is_asked_of_the_framework(monkeypatch, capability, refused):
    class Gpu:
        platform = "gpu"
        compute_capability = capability

    assert module.capability(Gpu()) == tuple(map(int, capability.split(".")))
    assert module.capability(jax.devices()[0]) is None
    # A GPU in name alone: everything else is on the CPU.
    monkeypatch.setattr(module, "select_device", lambda platform: jax.devices()[0])
    monkeypatch.setattr(module, "capability", lambda device: module_capability(Gpu()))
    config = TrainConfig(arithmetic="tf32")
    if refused:
        with pytest.raises(UserError, match=r"gpu:0 \(compute capability 7.5\) has no TF32"):
            Trainer(config, Platform("gpu"), 1)
        return
    found = Trainer(config, Platform("gpu"), 1).environment()
    assert found["precision"] == {"matmul": "high"}
    # The permission is there and the CPU does not use it: only the products tell.
    assert set(found["product_bits"].values()) == {23}


module_capability = module.capability


@pytest.mark.parametrize(
    ("flags", "deterministic", "autotune"),
    [
        ("--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0", True, False),
        ("--xla_gpu_exclude_nondeterministic_ops=true --xla_gpu_autotune_level=4", True, True),
        ("--xla_gpu_deterministic_ops=true --xla_gpu_deterministic_ops=false", False, True),
    ],
)
def test_the_last_of_xlas_flags_counts(monkeypatch, flags, deterministic, autotune):
    class Gpu:
        platform = "gpu"

    monkeypatch.setenv("XLA_FLAGS", flags)
    assert module.kernels_in_force(Gpu()) == {
        "deterministic_ops": deterministic,
        "xla_autotune": autotune,
    }
    assert set(module.kernels_in_force(jax.devices()[0]).values()) == {None}


@pytest.mark.parametrize("arithmetic", ["float32", "exact"])
def test_settings_of_the_environment_stop_no_training(random_weights, random_batch, arithmetic):
    strict = {
        "jax_numpy_dtype_promotion": "strict",
        "jax_numpy_rank_promotion": "raise",
        "jax_transfer_guard": "disallow",
    }
    for name, value in strict.items():
        jax.config.update(name, value)
    trainer = make_trainer(arithmetic=arithmetic)
    trainer.load(random_weights(1, "float32") | initial_state("adam", random_weights(1, "float32")))
    assert np.isfinite(trainer.train_step(random_batch(1)).loss)
