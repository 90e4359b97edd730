"""PyTorch's exact operations equal the oracle in every bit, and planted faults do not."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from parity.exact import oracle
from parity.exact.adversarial import KINDS, tensor
from parity.exact.rules import operand_bits
from torch_impl import ops
from torch_impl.engines import ENGINES

EPS = 1e-5
KEEP = 0.9
LR = 1e-3
ENGINE = ENGINES["float64"]
"""test_engines.py shows that the others give the same bits."""
BOUND = 2**17
"""The longest contraction of the network: the first layer's weight gradient at batch size 128."""

CONV_SHAPES = [((1, 3, 4, 4), 5), ((3, 1, 6, 2), 2)]
DENSE_SHAPES = [(1, 7, 3), (5, 2, 9)]
IMAGE_SHAPES = [(1, 3, 4, 6), (5, 1, 2, 2)]
LARGEST_EXPONENT = 40

few = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**32 - 1)


# Each operation with its gradients, from NumPy to NumPy, in PyTorch's layout.


def differentiated(function, arrays, grad):
    """Return the function's value and its gradients by all arrays."""
    inputs = [torch.tensor(a, requires_grad=True) for a in arrays]
    y = function(*inputs)
    y.backward(torch.tensor(grad))
    return [t.detach().cpu().numpy() for t in (y, *(x.grad for x in inputs))]


def plain(function, *arrays):
    """Return what the function makes of arrays."""
    made = function(*(torch.tensor(a) for a in arrays))
    return [t.cpu().numpy() for t in (made if isinstance(made, tuple) else (made,))]


def conv(x, weight, bias, g):
    return differentiated(lambda *a: ops.Conv.apply(*a, ENGINE), (x, weight, bias), g)


def dense(x, weight, bias, g):
    return differentiated(lambda *a: ops.Dense.apply(*a, ENGINE), (x, weight, bias), g)


def batch_norm(x, weight, bias, mean, var, g):
    statistics = torch.tensor(mean), torch.tensor(var), EPS
    return differentiated(lambda *a: ops.BatchNorm.apply(*a, *statistics), (x, weight, bias), g)


def batch_statistics(x):
    return plain(ops.batch_statistics, x)


def relu(x, g):
    return differentiated(ops.Relu.apply, (x,), g)


def max_pool(x, g):
    return differentiated(ops.MaxPool.apply, (x,), g)


def dropout(x, keep, g):
    return differentiated(lambda a: ops.Dropout.apply(a, torch.tensor(keep)), (x,), g)


def cross_entropy(logits, labels):
    one = np.ones((), np.float32)
    return differentiated(lambda a: ops.CrossEntropy.apply(a, torch.tensor(labels)), (logits,), one)


def to_float32(x):
    return plain(ops.to_float32, x)


def quantise(x, bits):
    def quantised(a):
        scale = ops.scale_of(a, bits)
        return ops.quantise(a, scale), scale.exponent

    return plain(quantised, x)


def dot(a, b, bits):
    def product(a, b):
        sa, sb = ops.scale_of(a, bits), ops.scale_of(b, bits)
        qa, qb = ENGINE.operand(ops.quantise(a, sa)), ENGINE.operand(ops.quantise(b, sb))
        return ops.dot(ENGINE, qa, qb, (sa, sb))

    return plain(product, a, b)


def total(x):
    """Return the sum of each channel."""
    return plain(lambda a: ops.total(a, (0, 2, 3)), x)


def square_roots(x):
    """Return the root and its reciprocal."""
    return plain(ops.square_root, x) + plain(ops.reciprocal_square_root, x)


def running_average(old, new):
    return plain(lambda a, b: ops.running_average(a, b, KEEP), old, new)


def updated(update, parameter, g, slots, step=None):
    """Return the parameter and its slots after an update in place."""
    parameter, g, *arrays = (torch.tensor(a) for a in (parameter, g, *slots.values()))
    state = dict(zip(slots, arrays, strict=True))
    update(parameter, g, state | ({} if step is None else {"step": torch.tensor(step)}), LR)
    return [t.cpu().numpy() for t in (parameter, *arrays)]


def adam(parameter, g, m, v, step):
    return updated(ops.adam, parameter, g, {"exp_avg": m, "exp_avg_sq": v}, step)


def rmsprop(parameter, g, v):
    return updated(ops.rmsprop, parameter, g, {"square_avg": v})


def sgd(parameter, g, buffer):
    return updated(ops.sgd, parameter, g, {"momentum_buffer": buffer})


# What the tests below and the planted faults check.


def same(actual, expected):
    """Check that arrays have the same bits; -0 is not +0."""
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        assert a.shape == e.shape
        assert a.dtype == e.dtype == np.float32
        assert np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(e).tobytes()


def check_conv(x, weight, bias, g):
    expected = oracle.conv(x, weight, bias), *oracle.conv_gradients(x, weight, g)
    same(conv(x, weight, bias, g), expected)


def check_dense(x, weight, bias, g):
    expected = oracle.dense(x, weight, bias), *oracle.dense_gradients(x, weight, g)
    same(dense(x, weight, bias, g), expected)


def check_batch_norm(x, weight, bias, g):
    mean, var, unbiased = oracle.batch_statistics(x)
    same(batch_statistics(x), (mean, var, unbiased))
    for m, v in ((mean, var), (np.abs(weight), np.abs(bias))):  # the batch's, and foreign ones
        gradients = oracle.batch_norm_gradients(x, weight, g, m, v, EPS)
        expected = oracle.batch_norm(x, weight, bias, m, v, EPS), *gradients
        same(batch_norm(x, weight, bias, m, v, g), expected)


def check_max_pool(x, g):
    same(max_pool(x, g), (oracle.max_pool(x), oracle.max_pool_gradient(x, g)))


def check_optimizers(parameter, g, slot, step):
    square = oracle.to_float32(slot.astype(np.float64) ** 2)
    given = parameter, g, slot, square, step
    same(adam(*given), oracle.adam(*given, LR))
    same(rmsprop(parameter, g, square), oracle.rmsprop(parameter, g, square, LR))
    same(sgd(parameter, g, slot), oracle.sgd(parameter, g, slot, LR))


def tensors(shape, largest_exponent=LARGEST_EXPONENT):
    """Draw adversarial tensors and any others, without subnormal numbers."""
    largest = 2.0**largest_exponent if largest_exponent < 128 else float(np.finfo("f4").max)
    numbers = st.floats(-largest, largest, width=32, allow_subnormal=False)
    exponents = st.just(min(largest_exponent, 127))
    made = st.builds(tensor, st.sampled_from(KINDS), st.just(shape), seeds, exponents)
    return made | hnp.arrays(np.float32, shape, elements=numbers)


def cases(shapes, *of, largest_exponent=LARGEST_EXPONENT):
    """Draw tuples of tensors: `of` are functions from one of the shapes to a tensor's shape."""
    return st.sampled_from(shapes).flatmap(
        lambda shape: st.tuples(*(tensors(function(shape), largest_exponent) for function in of))
    )


conv_cases = cases(
    CONV_SHAPES,
    lambda s: s[0],
    lambda s: (s[1], s[0][1], 3, 3),
    lambda s: (s[1],),
    lambda s: (s[0][0], s[1], *s[0][2:]),
)
dense_cases = cases(
    DENSE_SHAPES, lambda s: s[:2], lambda s: (s[2], s[1]), lambda s: (s[2],), lambda s: (s[0], s[2])
)
batch_norm_cases = cases(
    IMAGE_SHAPES,
    lambda s: s,
    lambda s: s[1:2],
    lambda s: s[1:2],
    lambda s: s,
    largest_exponent=25,  # its gradient multiplies five numbers of this size
)
pool_cases = cases(IMAGE_SHAPES, lambda s: s, lambda s: (s[0], s[1], s[2] // 2, s[3] // 2))
optimizer_cases = st.tuples(tensors((17,)), tensors((17,)), tensors((17,)))
steps = st.sampled_from([1, 2, 100, 10**6])


# float64 near float32's smallest normal number and its largest one, and any other.
doubles = (
    st.floats(allow_nan=False, allow_infinity=False)
    | st.floats(-(2.0**-125), 2.0**-125)
    | st.floats(2.0**127, 2.0**128)
    | st.sampled_from([0.0, -0.0, float(np.nextafter(2.0**-126, 0)), 2.0**-126, -(2.0**-150)])
)


@few
@given(hnp.arrays(np.float64, 32, elements=doubles))
def test_to_float32_equals_the_oracle(x):
    same(to_float32(x), [oracle.to_float32(x)])


@few
@given(tensors((31,), 128), st.sampled_from([11, 18, 20, 52]))
def test_quantise_equals_the_oracle(x, bits):
    expected = oracle.quantise(x, bits)
    values, exponent = quantise(x, bits)
    assert values.astype(np.int64).tolist() == expected.q.tolist()
    assert exponent == expected.exponent


@few
@given(tensors((3, 33), 128), tensors((33, 2), 128))
def test_dot_equals_the_oracle(a, b):
    bits = operand_bits(33)
    same(dot(a, b, bits), [oracle.dot(oracle.quantise(a, bits), oracle.quantise(b, bits))])


@pytest.mark.parametrize("kind", ["saturating", "cancelling", "plain", "ties"])
def test_dot_at_the_bound_is_exact_in_any_order(kind):
    bits = operand_bits(BOUND)
    a, b = tensor(kind, (2, BOUND), 1), tensor(kind, (BOUND, 3), 2)
    a[0] = np.abs(a[0])  # with b's first column below: the largest sum of all, 2**53
    b[:, 0] = np.abs(b[:, 0])
    expected = oracle.dot(oracle.quantise(a, bits), oracle.quantise(b, bits))
    same(dot(a, b, bits), [expected])
    order = np.random.default_rng(3).permutation(BOUND)
    same(dot(a[:, order], b[order], bits), [expected])


@pytest.mark.parametrize("extra_bits", [0, 1, 2, 3])
def test_dot_depends_on_the_order_beyond_the_bound_and_only_there(extra_bits):
    rng = np.random.default_rng(1)
    a, b = (rng.uniform(0.75, 1, shape).astype(np.float32) for shape in ((2, BOUND), (BOUND, 3)))
    half = BOUND // 2
    a[:, half:], b[half:] = -a[:, :half], b[:half]  # takes back every product of the first half
    order = rng.permutation(BOUND)
    bits = operand_bits(BOUND) + extra_bits
    (ordered,), (mixed,) = dot(a, b, bits), dot(a[:, order], b[order], bits)
    assert np.array_equal(ordered, mixed) == (extra_bits == 0)
    assert np.array_equal(ordered, np.zeros((2, 3))) == (extra_bits == 0)


@few
@given(tensors((3, 5, 2, 4)), tensors((3, 5, 2, 4)))
def test_total_equals_the_oracle(x, y):
    for terms in (x, x.astype(np.float64) * y.astype(np.float64)):
        (actual,) = total(terms)
        # -0 and +0 are one number here: what follows rounds both to +0.
        assert actual.tolist() == oracle.total(terms, (0, 2, 3)).tolist()


@few
@given(dense_cases)
def test_dense_equals_the_oracle(case):
    check_dense(*case)


@few
@given(conv_cases)
def test_conv_equals_the_oracle(case):
    check_conv(*case)


@pytest.mark.parametrize("kind", ["saturating", "cancelling"])
def test_conv_of_the_first_layer_at_batch_128_equals_the_oracle(kind):
    shapes = (128, 3, 32, 32), (4, 3, 3, 3), (4,), (128, 4, 32, 32)
    assert np.prod(shapes[0]) // 3 == BOUND
    check_conv(*(tensor(kind, shape, seed) for seed, shape in enumerate(shapes)))


@few
@given(batch_norm_cases)
def test_batch_norm_equals_the_oracle(case):
    check_batch_norm(*case)


def test_batch_statistics_of_one_value_are_refused():
    # M - 1 is 0; the network's smallest images are 8 x 8.
    with pytest.raises(ZeroDivisionError):
        batch_statistics(np.ones((1, 2, 1, 1), np.float32))


@few
@given(tensors((9,)), tensors((9,)))
def test_running_average_equals_the_oracle(old, new):
    same(running_average(old, new), [oracle.running_average(old, new, KEEP)])


def near_squares(size):
    """Return numbers around the squares of float32 and of the midpoints between two float32."""
    rng = np.random.default_rng(0)
    roots = rng.integers(2**23, 2**24, size) + rng.choice([0.0, 0.5], size)
    squares = (roots * roots * 2.0 ** rng.integers(-160, 60, size)).astype(np.float32)
    patterns = squares.view(np.int32) + rng.integers(-1, 2, size, np.int32)
    return patterns.view(np.float32)


def test_square_root_equals_the_oracle():
    x = np.append(near_squares(5000), np.array([2.0**-126, np.finfo("f4").max], np.float32))
    x = x[x >= 2.0**-126]
    root = oracle.square_root(x)
    same(square_roots(x), [root, oracle.reciprocal(root)])
    assert square_roots(np.zeros(1, np.float32))[0] == 0


@few
@given(pool_cases)
def test_relu_equals_the_oracle(case):
    x, _ = case
    g = x[::-1].copy()
    same(relu(x, g), (oracle.relu(x), oracle.relu_gradient(x, g)))


@few
@given(pool_cases)
def test_max_pool_equals_the_oracle(case):
    check_max_pool(*case)


@few
@given(tensors((3, 8), 128), tensors((3, 8), 128), seeds)
def test_dropout_equals_the_oracle(x, g, seed):
    keep = np.random.default_rng(seed).random((3, 8)) < 0.5
    same(dropout(x, keep, g), (oracle.dropout(x, keep), oracle.dropout(g, keep)))


@few
@given(st.sampled_from([1, 7]), st.data())
def test_cross_entropy_equals_the_oracle(n, data):
    logits = data.draw(
        tensors((n, 10), 128)
        | hnp.arrays(
            np.float32, (n, 10), elements=st.floats(-40, 40, width=32, allow_subnormal=False)
        )
    )
    labels = np.random.default_rng(n).integers(0, 10, n)
    expected = oracle.cross_entropy(logits, labels), oracle.cross_entropy_gradient(logits, labels)
    same(cross_entropy(logits, labels), expected)


@few
@given(optimizer_cases, steps)
def test_optimizers_equal_the_oracle(case, step):
    check_optimizers(*case, step)


BROKEN = [np.nan, np.inf, -np.inf]


@pytest.mark.parametrize("value", BROKEN)
@pytest.mark.parametrize("position", [0, 5000, -1])
def test_quantise_makes_the_whole_tensor_nan(value, position):
    # Long enough for vectorised reductions, of which XLA's max loses NaN.
    x = np.ones(2**13, np.float32)
    x[position] = value
    values, _ = quantise(x, 18)
    assert np.isnan(values).all()
    assert np.isnan(total(x.reshape(64, 2, 8, 8))[0]).all()


@pytest.mark.parametrize("value", BROKEN)
def test_layers_never_lose_nan_and_infinity(value):
    x = tensor("plain", (1, 2, 4, 4), 0)
    weight, g = tensor("plain", (2, 2, 3, 3), 1), tensor("plain", (1, 2, 4, 4), 2)
    bias, x[0, 1, 2, 3] = np.zeros(2, np.float32), value
    assert np.isnan(conv(x, weight, bias, g)[0]).all()
    assert np.isnan(conv(g, weight, bias, x)[2]).all()
    flat = x.reshape(2, 16)
    assert np.isnan(dense(flat, flat, bias, flat[:, :2].copy())[0]).all()
    mean, var, _ = batch_statistics(x)
    assert np.isnan(mean).all()
    assert np.isnan(var).all()
    assert np.isnan(batch_norm(x, bias, bias, mean, var, g)[0]).all()


@pytest.mark.parametrize("value", BROKEN)
@pytest.mark.parametrize("place", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_elementwise_operations_never_lose_nan_and_infinity(value, place):
    x = tensor("plain", (1, 1, 4, 4), 0)
    x[0, 0][place] = value
    rectified = relu(x, x)[0]
    # Minus infinity is not the largest of anything, so that relu has to make it NaN.
    assert np.isnan(rectified[0, 0][place])
    assert not np.isfinite(max_pool(rectified, np.zeros((1, 1, 2, 2), np.float32))[0][0, 0, 0, 0])
    dropped = dropout(x.reshape(1, 16), np.zeros((1, 16), bool), x.reshape(1, 16))[0]
    assert np.isfinite(dropped).sum() == 15


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_roots_never_lose_nan_and_infinity(value):
    x = np.array([1, value, 4], np.float32)
    for root in square_roots(x):
        assert np.isnan(root).tolist() == [False, True, False]


def test_a_variance_or_a_moment_that_overflows_is_not_lost():
    x = tensor("plain", (1, 1, 4, 4), 0) * np.float32(1e30)
    mean, var, _ = batch_statistics(x)
    assert np.isinf(var).all()
    one = np.ones(1, np.float32)
    assert np.isnan(batch_norm(x, one, one, mean, var, x)[0]).all()
    huge = np.full(1, 1e30, np.float32)
    assert np.isnan(adam(one, huge, one, one, 1)[0]).all()
    assert np.isnan(rmsprop(one, huge, one)[0]).all()


@pytest.mark.parametrize("value", BROKEN)
@pytest.mark.parametrize("row", [0, 3])
def test_cross_entropy_of_nan_and_infinity_is_nan(value, row):
    logits = tensor("plain", (4, 10), 0)
    logits[row, 7] = value
    for label in (7, 2):
        assert np.isnan(cross_entropy(logits, np.full(4, label))[0])


# Planted faults. Each must make one of the checks above fail.


def plain_case(check):
    """Return tensors that a check passes without a fault."""
    shapes = {
        check_batch_norm: [(5, 3, 4, 6), (3,), (3,), (5, 3, 4, 6)],
        check_conv: [(3, 3, 4, 4), (5, 3, 3, 3), (5,), (3, 5, 4, 4)],
        check_dense: [(5, 7), (3, 7), (3,), (5, 3)],
        check_max_pool: [(5, 3, 4, 6), (5, 3, 2, 3)],
        check_optimizers: [(999,), (999,), (999,)],
    }[check]
    kind = {check_max_pool: "few values", check_conv: "ties", check_dense: "tiny"}.get(
        check, "plain"
    )
    arrays = [tensor(kind, shape, seed) for seed, shape in enumerate(shapes)]
    return [*arrays, 3] if check is check_optimizers else arrays


@pytest.mark.parametrize(
    "check", [check_batch_norm, check_conv, check_dense, check_max_pool, check_optimizers]
)
def test_the_cases_of_the_planted_faults_pass_without_a_fault(check):
    check(*plain_case(check))


def unrounded_centring(monkeypatch):
    """Contract (x - mean) * s in float64: the difference of two float32 is no float32."""

    def normalise(x, mean, inverse_std):
        return ops.to_float32((x.double() - mean.double()) * inverse_std.double())

    monkeypatch.setattr(ops, "normalise", normalise)


def contracted_moment(monkeypatch):
    """Contract b2 v + (1 - b2) (g g) in float64: the product of three float32 has 72 bits."""

    def product(x, y):
        return x.double() * (y.double() if isinstance(y, torch.Tensor) else y)

    monkeypatch.setattr(ops, "_product", product)


def uncontracted_shift(monkeypatch):
    """Round h * weight to float32 before the bias comes."""
    monkeypatch.setattr(ops, "scale_and_shift", lambda x, weight, bias: x * weight + bias)


def ties_away_from_zero(monkeypatch):
    def rounded(x, scale):
        exact = x.double() * scale.factor
        return torch.sign(exact) * torch.floor(exact.abs() + 0.5)

    monkeypatch.setattr(ops, "quantise", rounded)


def last_of_equals(monkeypatch):
    class Mirrored:
        apply = staticmethod(lambda x, pool=ops.MaxPool: pool.apply(x.flip(2, 3)).flip(2, 3))

    monkeypatch.setattr(ops, "MaxPool", Mirrored)


def float32_total(x, dims, factor=None):
    return (x if factor is None else x * factor).sum(dims).double()


def float32_sum(monkeypatch):
    monkeypatch.setattr(ops, "total", float32_total)


def unflushed_subnormals(monkeypatch):
    monkeypatch.setattr(ops, "to_float32", lambda x: x.to(torch.float32))


def one_more_bit(monkeypatch):
    monkeypatch.setattr(ops, "operand_bits", lambda num_terms: operand_bits(num_terms) + 1)


@pytest.mark.parametrize(
    ("plant", "check"),
    [
        (unrounded_centring, check_batch_norm),
        (uncontracted_shift, check_batch_norm),
        (float32_sum, check_batch_norm),
        (contracted_moment, check_optimizers),
        (ties_away_from_zero, check_conv),
        (one_more_bit, check_conv),
        (last_of_equals, check_max_pool),
        (unflushed_subnormals, check_dense),
    ],
)
def test_a_planted_fault_is_caught(plant, check, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        check(*plain_case(check))
