"""The claim of the exact arithmetic: PyTorch and JAX train to the same weights, bit by bit."""

import os
import subprocess
import sys
from functools import cache
from itertools import product

import jax
import numpy as np
import pytest
from jax.extend.core import Literal

import jax_impl.trainer
import parity.start
import torch_impl.trainer
from jax_impl import ops
from jax_impl.engines import Float64Engine
from parity import platforms, weights
from parity.architecture import BUFFERS, PARAMETERS, initial_weights
from parity.config import TrainConfig
from parity.data.dataset import Dataset, subset
from parity.data.pipeline import OwnPipeline, train_batches
from parity.errors import UserError
from parity.exact.operations import OPERATIONS
from parity.optimizers import initial_state
from parity.platforms import Platform
from parity.start import prepare
from parity.trainer import NonFinite

BATCH_SIZE = 32
NUM_STEPS = 10  # nine whole batches and one of 8 images
OPTIMIZERS = ("adam", "rmsprop", "sgd")
FRAMEWORKS = {"jax": jax_impl.trainer, "torch": torch_impl.trainer}

# Golden: weights.digest of weights, buffers, slots and losses after 10 steps on `photographs`, seed
# 42, crops, flips and dropout on. Made by torch 2.14.1 and jax 0.10.2 alike, on an AMD EPYC with
# AVX-512 and at sse4, avx2 and avx512; NumPy 2.4.6; 2026-11-30.
GOLDEN = {
    "adam": "3ecc06ad9df1804a1330ae090bcd08d85ecd74856a3ffaf284893d4faf7c01d0",
    "rmsprop": "4fa45ca91405f43bbb507110d4290df6bb1cd022cb0ef7dbf2752011bd9bd7a2",
    "sgd": "85943baf8d0c703b527333c621fe49aa597c4bd74c5329bdf90eaa6f4d04f089",
}


@pytest.fixture(autouse=True)
def _leave_x64_as_it_was():
    # A trainer sets it when it is made, and the tests share trainers.
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def batches(images: Dataset):
    """Yield one epoch."""
    size = (NUM_STEPS - 1) * BATCH_SIZE + 8
    dataset = subset(images, seed=TrainConfig().seed, train_size=size, test_size=1)
    return train_batches(dataset, seed=TrainConfig().seed, epoch=1, batch_size=BATCH_SIZE)


def start(framework, optimizer, *, arithmetic="exact", exact_only=()):
    """Return a trainer that has made no step."""
    config = TrainConfig(
        optimizer=optimizer,
        arithmetic=arithmetic,
        exact_only=exact_only,
        batch_size=BATCH_SIZE,
    )
    threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    trainer = FRAMEWORKS[framework].Trainer(config, Platform("cpu"), threads)
    trainer.load(first_state(optimizer))
    return trainer


def first_state(optimizer):
    first = initial_weights(TrainConfig().seed)
    return first | initial_state(optimizer, first)


def trained(trainer, images: Dataset, *, num_steps=NUM_STEPS):
    """Return the trainer's state after `num_steps` steps, with the losses among its tensors."""
    epoch = [batch for _, batch in zip(range(num_steps), batches(images), strict=False)]
    losses = [trainer.train_step(batch).loss for batch in epoch]
    assert len(losses) == num_steps
    return trainer.state() | {"losses": np.array(losses)}


@pytest.fixture(scope="module")
def trainers():
    """Return a function that gives a framework's trainer, made once: JAX compiles for seconds."""
    return cache(start)


@pytest.fixture(scope="module")
def trajectories(trainers, photographs):
    """Return a function that gives a framework's trajectory by an optimizer, made once."""
    return cache(lambda framework, optimizer: trained(trainers(framework, optimizer), photographs))


@pytest.fixture(scope="module")
def last_batch(photographs):
    """Return the epoch's last batch, of 8 images."""
    *_, last = batches(photographs)
    assert len(last.labels) == 8
    return last


def unequal(a, b) -> list[str]:
    """Return the names of the tensors that differ in any bit."""
    assert {n: (x.shape, x.dtype) for n, x in a.items()} == {
        n: (x.shape, x.dtype) for n, x in b.items()
    }
    return [name for name in a if a[name].tobytes() != b[name].tobytes()]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_weights_buffers_slots_and_losses_are_equal_in_every_bit(optimizer, trajectories):
    torch_state, jax_state = (trajectories(framework, optimizer) for framework in ("torch", "jax"))
    assert unequal(torch_state, jax_state) == []
    # Bits of tensors that stood still would prove nothing.
    first = first_state(optimizer)
    still = {n for n in first if np.array_equal(first[n], torch_state[n])}
    # BatchNorm cancels the bias before it: its gradient is exactly 0, or below half a bit.
    assert still <= {"conv1.bias", "conv2.bias", "conv3.bias"}
    assert len(set(torch_state["losses"].tolist())) == NUM_STEPS


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_digest_is_golden(framework, optimizer, trajectories):
    assert weights.digest(trajectories(framework, optimizer)) == GOLDEN[optimizer]


@pytest.mark.parametrize("first", FRAMEWORKS)
def test_a_run_that_changes_the_framework_halfway_has_the_golden_digest(
    first, trainers, photographs
):
    (second,) = FRAMEWORKS.keys() - {first}
    early, late = trainers(first, "adam"), trainers(second, "adam")
    early.load(first_state("adam"))
    epoch = list(batches(photographs))
    losses = [early.train_step(batch).loss for batch in epoch[:5]]
    late.load(early.state())
    losses += [late.train_step(batch).loss for batch in epoch[5:]]
    assert weights.digest(late.state() | {"losses": np.array(losses)}) == GOLDEN["adam"]


EVERYWHERE = [
    pytest.param(
        *where,
        marks=() if where[1:] == ("avx2", 2) else pytest.mark.slow,
        id="-".join(map(str, where)),
    )
    for where in product(FRAMEWORKS, platforms.LEVELS, (1, 2))
]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("framework", "level", "threads"), EVERYWHERE)
def test_the_digest_is_golden_at_every_instruction_set(framework, level, threads):
    try:
        platform = platforms.parse(f"cpu:{level}", framework)
    except UserError as error:
        pytest.skip(str(error))
    test = f"{__file__}::{test_the_digest_is_golden.__name__}"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        test,
        "-k",
        framework,
    ]
    ours = platforms.variables(platform, threads)
    environment = {n: v for n, v in (os.environ | ours).items() if v is not None}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
    assert "3 passed" in run.stdout


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_naming_all_operations_is_the_exact_arithmetic(framework, photographs):
    trainer = start(framework, "adam", arithmetic="float32", exact_only=tuple(OPERATIONS))
    assert weights.digest(trained(trainer, photographs)) == GOLDEN["adam"]


@pytest.mark.parametrize("operation", ["softmax", "optimizer"])  # the model's own tests do the rest
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_operation_that_is_not_named_is_native(framework, operation, photographs):
    others = tuple(OPERATIONS.keys() - {operation})
    trainer = start(framework, "adam", arithmetic="float32", exact_only=others)
    assert weights.digest(trained(trainer, photographs)) != GOLDEN["adam"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_is_native_beside_an_exact_operation_has_the_bits_of_float32(framework, photographs):
    # Native selection rounds nothing, so this pair differs by what exact operations bring along: in
    # JAX 64-bit types, under which Optax would compute Adam's bias corrections in float64.
    native, mixed = (
        trained(start(framework, "adam", arithmetic="float32", exact_only=names), photographs)
        for names in ((), ("selection",))
    )
    assert unequal(native, mixed) == []


def test_float32_is_not_equal(photographs):
    # Planted fault: everything of the claim but the exact arithmetic.
    torch_state, jax_state = (
        trained(start(framework, "sgd", arithmetic="float32"), photographs, num_steps=1)
        for framework in ("torch", "jax")
    )
    assert "fc1.weight" in unequal(torch_state, jax_state)


@pytest.fixture
def subnormal_weights(tmp_path):
    """Return a file of weights whose subnormals grow, and are not hidden by anything larger."""
    first = initial_weights(TrainConfig().seed)
    for name, value in (("bn1.bias", 0), ("conv2.weight", 1), ("conv2.bias", 0)):
        first[name] = np.full_like(first[name], value)
    # Below 2**-126; times a normalised value it may be above, and conv2 adds 288 of these.
    first["bn1.weight"] = np.full_like(first["bn1.weight"], 1e-38)
    weights.save(tmp_path / "w.safetensors", first)
    return tmp_path / "w.safetensors"


def trained_from(path, trainers, images):
    """Return the states of both frameworks after a step from a file of weights."""
    config = TrainConfig(
        init_weights=path,
        out=path.parent,
        optimizer="sgd",
        arithmetic="exact",
        dataset="digits",
        train_size=1,
        test_size=1,
    )
    state = prepare(config, None, {}, "binary", OwnPipeline(config.seed)).state
    states = []
    for framework in ("torch", "jax"):
        trainer = trainers(framework, "sgd")
        trainer.load(state)
        states.append(trained(trainer, images, num_steps=1))
    return states


def test_subnormal_initial_weights_are_zero_in_both_frameworks(
    subnormal_weights, trainers, photographs
):
    assert unequal(*trained_from(subnormal_weights, trainers, photographs)) == []


def test_subnormal_initial_weights_that_stay_would_show(
    subnormal_weights, trainers, photographs, monkeypatch
):
    monkeypatch.setattr(parity.start, "flush_subnormals", lambda array: array)
    found = unequal(*trained_from(subnormal_weights, trainers, photographs))
    assert "bn2.running_mean" in found


def broken(state, name, value):
    tensor = state[name].copy()
    tensor.flat[tensor.size // 2] = value
    return state | {name: tensor}


BROKEN = [np.nan, np.inf, -np.inf]


@pytest.mark.parametrize("value", BROKEN)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_nan_or_infinity_in_any_weight_ends_the_run(framework, value, trainers, last_batch):
    trainer = trainers(framework, "sgd")
    for name in PARAMETERS:
        trainer.load(broken(first_state("sgd"), name, value))
        with pytest.raises(NonFinite) as error:
            trainer.train_step(last_batch)
        assert error.value.tensor == name
        assert not np.isfinite(trainer.test_step(last_batch).loss), name


@pytest.mark.parametrize("value", BROKEN)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_nan_or_infinity_in_any_statistic_shows_in_the_test_loss(
    framework, value, trainers, last_batch
):
    trainer = trainers(framework, "sgd")
    for name in BUFFERS:
        if not name.endswith("num_batches_tracked"):
            trainer.load(broken(first_state("sgd"), name, value))
            assert not np.isfinite(trainer.test_step(last_batch).loss), name


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_overflow_ends_the_run_and_is_named(framework, trainers, last_batch):
    trainer, state = trainers(framework, "sgd"), first_state("sgd")
    trainer.load(state | {"bn1.weight": np.full_like(state["bn1.weight"], 3e38)})
    with pytest.raises(NonFinite) as error:
        trainer.train_step(last_batch)
    assert error.value.tensor == "output of bn1"


WIDE, NARROW = np.dtype("float64"), np.dtype("float32")
MOVED = {
    "reshape",
    "transpose",
    "broadcast_in_dim",
    "squeeze",
    "slice",
    "concatenate",
    "rev",
    "pad",
}
"""Operations that XLA may move to the other side of a cast."""


def droppable_casts(jaxpr, rounded: tuple[bool, ...] = ()) -> tuple[int, tuple[bool, ...]]:
    """Count casts float64 -> float32 -> float64, which XLA for GPUs replaces by nothing.

    Args:
        jaxpr: A function.
        rounded: Which of its arguments are float64 cast to float32. Empty: none.

    Returns:
        The number of pairs, and which of the results are float64 cast to float32.
    """
    count, casts = 0, {v for v, is_cast in zip(jaxpr.invars, rounded, strict=False) if is_cast}

    def cast(values):
        return tuple(not isinstance(v, Literal) and v in casts for v in values)

    for equation in jaxpr.eqns:
        inner = [v for v in equation.params.values() if hasattr(v, "eqns") or hasattr(v, "jaxpr")]
        branches = equation.params.get("branches", ())
        results = (False,) * len(equation.outvars)
        if equation.primitive.name == "convert_element_type":
            before, after = equation.invars[0].aval.dtype, equation.outvars[0].aval.dtype
            count += cast(equation.invars)[0] and after == WIDE
            results = ((before, after) == (WIDE, NARROW),)
        elif inner:
            (body,) = inner
            found, results = droppable_casts(getattr(body, "jaxpr", body), cast(equation.invars))
            count += found
        elif branches:  # the first argument chooses one
            found = [
                droppable_casts(branch.jaxpr, cast(equation.invars[1:])) for branch in branches
            ]
            count += sum(number for number, _ in found)
            results = tuple(map(any, zip(*(casts for _, casts in found), strict=True)))
        elif equation.primitive.name in MOVED:
            results = (any(cast(equation.invars)),)
        casts |= {v for v, is_cast in zip(equation.outvars, results, strict=True) if is_cast}
    return count, cast(jaxpr.outvars)


def casts_of_a_step(optimizer, batch, monkeypatch, to_float32=ops.to_float32):
    """Count them in a training step with another rounding to float32.

    Whole numbers of at most 20 bits go through float32 on their way to the product. That cast
    changes nothing, so the operands are left as they are here.
    """
    trainer = start("jax", optimizer)
    with monkeypatch.context() as planted:
        planted.setattr(ops, "to_float32", to_float32)
        planted.setattr(Float64Engine, "operand", lambda self, q: q[None])
        jax.clear_caches()  # of earlier traces
        step = jax.make_jaxpr(trainer._update_step)(trainer._state, *trainer._tensors(batch))
    jax.clear_caches()
    return droppable_casts(step.jaxpr)[0]


def test_no_rounding_to_float32_is_one_that_xla_may_drop(last_batch, monkeypatch):
    assert casts_of_a_step("adam", last_batch, monkeypatch) == 0


def test_a_planted_cast_that_xla_may_drop_is_found(last_batch, monkeypatch):
    cast = lambda x: x.astype("float32")  # noqa: E731
    assert casts_of_a_step("adam", last_batch, monkeypatch, cast) > 0
