"""Every engine of the exact product gives the same bits in JAX, and planted faults do not."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from jax_impl import engines, ops
from jax_impl.engines import ENGINES
from jax_impl.model import SimpleCNN
from jax_impl.weights import from_canonical
from parity.architecture import initial_weights
from parity.data import digits
from parity.exact import engines as rules
from parity.exact.adversarial import KINDS, tensor
from parity.exact.operations import OPERATIONS
from parity.exact.rules import MAX_OPERAND_BITS, operand_bits

LARGEST = 2**MAX_OPERAND_BITS
SHAPES = [(1, 1, 1), (5, 27, 3), (3, 130, 10), (33, 8, 16)]

few = settings(max_examples=50, deadline=None)


@pytest.fixture(autouse=True)
def _leave_x64_as_it_was():
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def product(engine, a, b):
    """Return the product of integer matrices by an engine, int64."""
    made = compiled_product(engine)(*(jnp.asarray(x, jnp.float64) for x in (a, b)))
    assert made.dtype == jnp.float64
    return np.asarray(made).astype(np.int64)


@cache
def compiled_product(engine):
    return jax.jit(lambda a, b: engine.product(engine.operand(a), engine.operand(b)))


def integers(shape, largest):
    """Draw operands: the extreme ones, those whose digits are extreme, and any other."""
    extreme = [sign * value for value in (largest, 64, 8256) for sign in (-1, 1)]
    numbers = st.integers(-largest, largest) | st.sampled_from(extreme)
    return hnp.arrays(np.int64, shape, elements=numbers)


@st.composite
def matrices(draw):
    i, k, j = draw(st.sampled_from(SHAPES))
    largest = 2 ** operand_bits(k)
    return draw(integers((i, k), largest)), draw(integers((k, j), largest))


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
@few
@given(matrices())
def test_a_product_equals_that_of_int64(engine, operands):
    a, b = operands
    assert np.array_equal(product(engine, a, b), a @ b)


@few
@given(integers((64,), LARGEST))
def test_digits_are_small_and_stand_for_the_number(q):
    found = ENGINES["int8"].operand(jnp.asarray(q, jnp.float64))
    found = np.asarray(found).astype(np.int64)
    assert found.min() >= -64
    assert found.max() <= 64
    assert np.array_equal(sum(d * rules.BASE**i for i, d in enumerate(found)), q)


LONG = rules.MAX_TERMS + 5


def longest(kind):
    """Return operands longer than one int32 sum can be, of the bits that they may have."""
    largest = 2 ** operand_bits(LONG)
    rng = np.random.default_rng(0)
    if kind == "one sign":
        return np.full((2, LONG), -largest), np.full((LONG, 3), largest)
    if kind == "largest digits":  # -64 in each of the two lower digits
        return np.full((2, LONG), -8256), np.full((LONG, 3), -8256)
    return (rng.integers(-largest, largest + 1, shape) for shape in ((2, LONG), (LONG, 3)))


@pytest.mark.parametrize("kind", ["one sign", "largest digits", "random"])
@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_the_longest_products_are_exact(engine, kind):
    a, b = longest(kind)
    assert np.array_equal(product(engine, a, b), a @ b)


def test_planted_sums_longer_than_int32_holds_are_caught(monkeypatch):
    # 64 * 64 * 2**19 terms = 2**31: one more than int32 holds.
    monkeypatch.setattr(engines, "MAX_TERMS", 2**20)
    a, b = np.full((1, 2**19), -8256), np.full((2**19, 1), -8256)
    assert not np.array_equal(product(ENGINES["int8"], a, b), a @ b)


def test_planted_operands_of_too_many_bits_are_caught():
    a = np.full((1, 8), 2**22)  # the last digit would be 256
    assert not np.array_equal(product(ENGINES["int8"], a, a.T), a @ a.T)


@few
@given(
    st.sampled_from(KINDS), st.sampled_from([((2, 3, 4, 4), 5), ((1, 1, 6, 2), 2)]), st.integers(0)
)
def test_a_convolution_has_the_same_bits_from_every_engine(kind, shapes, seed):
    (n, inputs, height, width), outputs = shapes
    made = ((n, height, width, inputs), (3, 3, inputs, outputs), (outputs,))
    arrays = [tensor(kind, shape, seed + i, 40) for i, shape in enumerate(made)]
    grad = tensor(kind, (n, height, width, outputs), seed + 3, 40)
    tensors = map(jnp.asarray, (*arrays, grad))
    first, *others = [
        [np.asarray(a).tobytes() for a in differentiated(engine)(*tensors)]
        for tensors in [tuple(tensors)]
        for engine in ENGINES.values()
    ]
    assert all(other == first for other in others)


@cache
def differentiated(engine):
    @jax.jit
    def both(x, kernel, bias, grad):
        y, gradients = jax.vjp(lambda *a: ops.conv(*a, engine, True), x, kernel, bias)
        return y, *gradients(grad)

    return both


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_a_broken_operand_makes_every_product_nan(engine, value):
    x = jnp.ones((2, 3), jnp.float32).at[1, 1].set(value)
    ones, zeros = jnp.ones((3, 4), jnp.float32), jnp.zeros(4, jnp.float32)
    assert jnp.isnan(ops.dense(x, ones, zeros, engine)).all()


def test_real_images_have_the_same_bits_from_every_engine():
    dataset = digits.load()
    images = jnp.asarray(dataset.train_images[:20] / np.float32(255))
    labels = jnp.asarray(dataset.train_labels[:20])
    keep = jnp.arange(20 * 2048).reshape(20, 2048) % 2 == 0

    def bits(engine):
        model = SimpleCNN(jnp.dtype("float32"), frozenset(OPERATIONS), engine)
        graph, params, stats = nnx.split(model, nnx.Param, nnx.BatchStat)
        params = from_canonical(params, initial_weights(0))

        @jax.jit
        def loss(params):
            logits = nnx.merge(graph, params, stats, copy=True)(images, keep)
            return ops.cross_entropy(logits, labels), logits

        (_, logits), grads = jax.value_and_grad(loss, has_aux=True)(params)
        return [np.asarray(a).tobytes() for a in jax.tree.leaves((logits, grads))]

    first, *others = map(bits, ENGINES.values())
    assert len(set(first)) > 10  # not all of them zeros
    assert all(other == first for other in others)


def test_the_chosen_engine_is_one_of_them():
    assert engines.choose(jnp.zeros(1).device) in ENGINES
