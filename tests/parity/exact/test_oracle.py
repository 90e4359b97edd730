"""The oracle against rational numbers, formulas of the literature and finite differences."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from parity.exact import oracle
from parity.exact.adversarial import KINDS, tensor
from parity.exact.rules import bias_corrections, operand_bits, term_bits
from parity.optimizers import ADAM_BETAS, EPS, RMSPROP_ALPHA, SGD_MOMENTUM

SMALLEST = 2.0**-126
LR = 1e-3

seeds = st.integers(0, 2**32 - 1)
kinds = st.sampled_from(KINDS)
normal = st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False)
positive = st.floats(SMALLEST, float(np.finfo(np.float32).max), width=32)


def rational(x: np.ndarray) -> np.ndarray:
    """Return the exact values, Fraction."""
    return np.array([Fraction(float(v)) for v in x.flat], object).reshape(x.shape)


def nearest(value: Fraction) -> float:
    """Return the float32 nearest to a rational number, found among the neighbours of a guess."""
    if abs(value) < Fraction(SMALLEST):
        return 0.0
    if abs(value) >= 2**128 - 2**103:
        return float("inf") if value > 0 else float("-inf")
    with np.errstate(over="ignore"):
        guess = np.float32(float(value))
        if np.isinf(guess):
            guess = np.copysign(np.finfo(np.float32).max, guess)
        around = [guess, *(np.nextafter(guess, np.float32(side)) for side in (-np.inf, np.inf))]
    exact = [
        (abs(Fraction(float(c)) - value), int(c.view("i4")) & 1, c)
        for c in around
        if np.isfinite(c)
    ]
    return float(min(exact)[2])  # the nearest one; of two equally near ones the even one


def quantised(x: np.ndarray, bits: int) -> np.ndarray:
    """Return what `quantise` makes of x, as rational numbers."""
    largest = max(abs(v) for v in rational(x).flat)
    exponent = 0
    if largest:
        while Fraction(2) ** exponent <= largest:
            exponent += 1
        while Fraction(2) ** (exponent - 1) > largest:
            exponent -= 1
    unit = Fraction(2) ** (exponent - bits)
    return np.array([round(v / unit) * unit for v in rational(x).flat], object).reshape(x.shape)


def rounded(values: np.ndarray) -> np.ndarray:
    return np.array([nearest(v) for v in values.flat], np.float32).reshape(values.shape)


def same(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.dtype == expected.dtype == np.float32
    assert actual.shape == expected.shape
    assert np.array_equal(actual.view(np.int32), expected.view(np.int32))


@given(st.floats(allow_nan=False, allow_infinity=False) | normal | st.floats(-1e-37, 1e-37))
def test_to_float32_is_the_nearest_one_or_0(value):
    same(oracle.to_float32(np.array([value])), np.array([nearest(Fraction(value))], np.float32))


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_value_just_below_the_smallest_normal_number_becomes_0_and_is_not_rounded_up(sign):
    below = np.nextafter(SMALLEST, 0)
    assert np.float32(below) == np.float32(SMALLEST)
    flushed = oracle.to_float32(np.array([sign * below, sign * SMALLEST]))
    assert flushed.tolist() == [0, sign * SMALLEST]
    assert not np.signbit(flushed[0])


@given(st.fractions(min_value=Fraction(1, 10**46), max_value=10**39) | positive.map(Fraction))
def test_nearest_float32_is_the_nearest_one_or_0(value):
    if value > 0:
        assert float(oracle.nearest_float32(value)) == nearest(value)


@given(positive)
def test_square_root_is_the_nearest_one(value):
    root = float(oracle.square_root(np.array([value], np.float32))[0])
    above, below = (float(np.nextafter(np.float32(root), np.float32(s))) for s in (np.inf, 0))
    # The true root lies between the midpoints to both neighbours.
    assert ((Fraction(root) + Fraction(below)) / 2) ** 2 <= Fraction(value)
    assert ((Fraction(root) + Fraction(above)) / 2) ** 2 >= Fraction(value)


def test_square_root_of_squares_is_exact_and_of_0_is_0():
    values = np.arange(4096, dtype=np.float32)
    same(oracle.square_root(values * values), values)


@given(positive)
def test_reciprocal_is_the_nearest_one(value):
    expected = np.array([nearest(1 / Fraction(value))], np.float32)
    same(oracle.reciprocal(np.array([value], np.float32)), expected)


@given(kinds, seeds, st.integers(11, 20))
def test_quantise_rounds_to_a_common_power_of_two(kind, seed, bits):
    x = tensor(kind, (17,), seed, largest_exponent=127)
    q = oracle.quantise(x, bits)
    assert np.abs(q.q).max() <= 2**bits
    unit = Fraction(2) ** (q.exponent - bits)
    assert [int(v) * unit for v in q.q] == quantised(x, bits).tolist()


@given(kinds, seeds)
def test_dot_is_the_exact_sum_rounded_once(kind, seed):
    a = tensor(kind, (2, 9), seed, largest_exponent=127)
    b = tensor(kind, (9, 3), seed + 1, largest_exponent=127)
    bits = operand_bits(9)
    expected = rounded(quantised(a, bits) @ quantised(b, bits))
    same(oracle.dot(oracle.quantise(a, bits), oracle.quantise(b, bits)), expected)


@given(kinds, seeds)
def test_total_is_the_exact_sum_of_the_quantised_terms(kind, seed):
    x = tensor(kind, (5, 3, 2, 2), seed)
    sums = oracle.total(x, (0, 2, 3))
    assert sums.dtype == np.float64
    expected = quantised(x, term_bits(20)).sum((0, 2, 3)).tolist()
    assert [Fraction(float(s)) for s in sums] == expected


def test_total_of_few_terms_of_like_size_loses_nothing():
    x = tensor("plain", (8, 1), 0)
    assert Fraction(float(oracle.total(x, (0,))[0])) == rational(x).sum()


@given(kinds, seeds)
def test_dense_is_its_formula_in_rational_numbers(kind, seed):
    x, weight, g = (tensor(kind, s, seed + i) for i, s in enumerate([(3, 5), (4, 5), (3, 4)]))
    bias = tensor("plain", (4,), seed)
    bits = operand_bits(5)
    qx, qw, qg = (quantised(array, bits) for array in (x, weight, g))
    product = rounded(qx @ qw.T)
    same(oracle.dense(x, weight, bias), rounded(rational(product) + rational(bias)))
    dx, dw, db = oracle.dense_gradients(x, weight, g)
    same(dx, rounded(qg @ qw))
    same(dw, rounded(qg.T @ qx))
    same(db, rounded(quantised(g, term_bits(3)).sum(0)))


CONV_SHAPES = [((1, 1, 2, 3), 2), ((2, 3, 3, 2), 1)]


@settings(max_examples=20, deadline=None)
@given(kinds, seeds, st.sampled_from(CONV_SHAPES))
def test_conv_is_its_formula_in_rational_numbers(kind, seed, sizes):
    shape, outputs = sizes
    n, inputs, height, width = shape
    x, weight = tensor(kind, shape, seed), tensor(kind, (outputs, inputs, 3, 3), seed + 1)
    bias, g = tensor("plain", (outputs,), seed), tensor(kind, (n, outputs, height, width), seed + 2)
    bits = operand_bits(max(9 * inputs, 9 * outputs, n * height * width))
    qx, qw, qg = (quantised(array, bits) for array in (x, weight, g))
    y, dx, dw = (np.full(a.shape, Fraction(0), object) for a in (g, x, weight))
    spots = product(*map(range, (n, outputs, height, width, inputs, 3, 3)))
    for image, o, row, column, i, r, s in spots:
        at = (image, i, row + r - 1, column + s - 1)
        if 0 <= at[2] < height and 0 <= at[3] < width:
            y[image, o, row, column] += qx[at] * qw[o, i, r, s]
            dx[at] += qg[image, o, row, column] * qw[o, i, r, s]
            dw[o, i, r, s] += qg[image, o, row, column] * qx[at]
    biased = rational(rounded(y)) + rational(bias)[:, None, None]
    same(oracle.conv(x, weight, bias), rounded(biased))
    db = quantised(g, term_bits(n * height * width)).sum((0, 2, 3))
    expected = (rounded(dx), rounded(dw), rounded(np.asarray(db)))
    for actual, gradient in zip(oracle.conv_gradients(x, weight, g), expected, strict=True):
        same(actual, gradient)


@given(seeds)
def test_conv_gradients_are_the_derivative_of_conv(seed):
    # Small integers pass every rounding unharmed, and conv is linear in x and in the weights.
    rng = np.random.default_rng(seed)
    shapes = [(2, 3, 4, 5), (2, 3, 3, 3), (2, 2, 4, 5)]
    x, weight, g = (rng.integers(-9, 10, shape).astype(np.float32) for shape in shapes)
    dx, dw, db = oracle.conv_gradients(x, weight, g)
    slope = (oracle.conv(x, weight, np.zeros(2, np.float32)) * g).sum()
    assert (x * dx).sum() == (weight * dw).sum() == slope
    assert db.tolist() == g.sum((0, 2, 3)).tolist()


@given(seeds)
def test_batch_statistics_are_near_those_of_numpy(seed):
    x = tensor("plain", (4, 3, 5, 2), seed)
    mean, var, unbiased = oracle.batch_statistics(x)
    wide = x.astype(np.float64)
    # float32 rounds to 6e-8 of values near 1.
    np.testing.assert_allclose(mean, wide.mean((0, 2, 3)), atol=1e-6)
    np.testing.assert_allclose(var, wide.var((0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(unbiased, wide.var((0, 2, 3), ddof=1), rtol=1e-6)


def test_batch_statistics_of_a_single_image():
    x = tensor("plain", (1, 3, 2, 2), 0)
    np.testing.assert_allclose(oracle.batch_statistics(x)[2], x.var((0, 2, 3), ddof=1), rtol=1e-6)


def test_batch_norm_and_its_gradients_are_near_the_derivative():
    # Central differences of the textbook formula in float64, step 1e-6: good to 1e-8.
    rng = np.random.default_rng(0)
    x, g = rng.standard_normal((2, 2, 3, 4, 2))
    weight, bias = rng.standard_normal((2, 3))

    def textbook(x, weight, bias):
        mean, var = (f(x, axis=(0, 2, 3), keepdims=True) for f in (np.mean, np.var))
        h = (x - mean) / np.sqrt(var + 1e-5)
        return h * weight[:, None, None] + bias[:, None, None]

    def slope(position, arrays):
        found = np.zeros_like(arrays[position])
        for index in np.ndindex(found.shape):
            shifted = [[a.copy() for a in arrays] for _ in range(2)]
            shifted[0][position][index] += 1e-6
            shifted[1][position][index] -= 1e-6
            upper, lower = (float((textbook(*s) * g).sum()) for s in shifted)
            found[index] = (upper - lower) / 2e-6
        return found

    single = [a.astype(np.float32) for a in (x, weight, bias)]
    mean, var, _ = oracle.batch_statistics(single[0])
    y = oracle.batch_norm(*single, mean, var, 1e-5)
    np.testing.assert_allclose(y, textbook(x, weight, bias), atol=1e-5)
    gradients = oracle.batch_norm_gradients(
        single[0], single[1], g.astype(np.float32), mean, var, 1e-5
    )
    for position, gradient in enumerate(gradients):
        # float32: sixteen values a channel, of size 1, each rounded to 6e-8 a few times.
        np.testing.assert_allclose(gradient, slope(position, [x, weight, bias]), atol=1e-5)


@given(seeds)
def test_relu_and_max_pool_of_few_values_by_loops(seed):
    x = tensor("few values", (1, 2, 4, 6), seed)
    g = tensor("plain", (1, 2, 2, 3), seed)
    relu, pooled, dx = oracle.relu(x), oracle.max_pool(x), oracle.max_pool_gradient(x, g)
    same(oracle.relu_gradient(x, x), relu)
    expected = np.zeros_like(x)
    for channel, row, column in product(range(2), range(2), range(3)):
        spots = [(0, channel, 2 * row + r, 2 * column + c) for r in (0, 1) for c in (0, 1)]
        first = spots[0]
        for spot in spots[1:]:
            first = spot if x[spot] > x[first] else first
        same(pooled[0, channel, row, column][None], x[first][None])
        expected[first] = g[0, channel, row, column]
    same(dx, expected)
    assert (relu == np.maximum(x, 0)).all()
    assert not np.signbit(relu).any()


def test_dropout_doubles_what_it_keeps():
    x = np.array([[1.5, -2.0, 3e38, 0.25]], np.float32)
    keep = np.array([[True, True, True, False]])
    assert oracle.dropout(x, keep).tolist() == [[3.0, -4.0, np.inf, 0.0]]


logits = hnp.arrays(np.float32, (3, 10), elements=st.floats(-50, 50, width=32))


@given(logits, seeds)
def test_cross_entropy_and_its_gradient_are_near_the_formula(logits, seed):
    labels = np.random.default_rng(seed).integers(0, 10, 3)
    wide = logits.astype(np.float64)
    # Differences beyond 34 count as 34: exp(-34) is 2e-15.
    distance = np.minimum(wide.max(1, keepdims=True) - wide, 34)
    exponentials = np.exp(-distance)
    sums = exponentials.sum(1)
    losses = np.log(sums) + distance[np.arange(3), labels]
    # log is good to 2**-27 and exp to 2**-28; float32 rounds to 2**-24 of the result.
    np.testing.assert_allclose(
        oracle.cross_entropy(logits, labels), losses.mean(), rtol=2**-23, atol=2**-26
    )
    chances = exponentials / sums[:, None] - (np.arange(10) == labels[:, None])
    gradient = oracle.cross_entropy_gradient(logits, labels)
    np.testing.assert_allclose(gradient, chances / 3, rtol=2**-23, atol=2**-26)


def test_cross_entropy_of_equal_logits_is_log_10():
    loss = oracle.cross_entropy(np.full((4, 10), 7, np.float32), np.zeros(4, int))
    assert loss.shape == ()
    assert abs(float(loss) - 2.302585092994046) < 2**-22


def close(actual, expected):
    # A handful of float32 roundings of 6e-8 each.
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-30)


@given(seeds, st.sampled_from([1, 2, 10, 100_000]))
def test_adam_is_near_its_formula(seed, step):
    rng = np.random.default_rng(seed)
    p, g, m = rng.standard_normal((3, 20)).astype(np.float32)
    v = (rng.random(20) + 0.1).astype(np.float32)
    new_p, new_m, new_v = oracle.adam(p, g, m, v, step, LR)
    b1, b2 = ADAM_BETAS
    wide = [a.astype(np.float64) for a in (p, g, m, v)]
    moment, square = b1 * wide[2] + (1 - b1) * wide[1], b2 * wide[3] + (1 - b2) * wide[1] ** 2
    # m may cancel to nearly 0; what is left has the error of its terms.
    np.testing.assert_allclose(new_m, moment, rtol=1e-6, atol=1e-6)
    close(new_v, square)
    direction = moment / (1 - b1**step) / (np.sqrt(square / (1 - b2**step)) + EPS)
    np.testing.assert_allclose(new_p, wide[0] - LR * direction, rtol=1e-6, atol=1e-6)
    assert len(bias_corrections(b2)) < 100_000  # the table's end is covered


@given(seeds)
def test_rmsprop_and_sgd_are_near_their_formulas(seed):
    rng = np.random.default_rng(seed)
    p, g, buffer = rng.standard_normal((3, 20)).astype(np.float32)
    v = rng.random(20).astype(np.float32)
    new_p, new_v = oracle.rmsprop(p, g, v, LR)
    wide = [a.astype(np.float64) for a in (p, g, buffer, v)]
    square = RMSPROP_ALPHA * wide[3] + (1 - RMSPROP_ALPHA) * wide[1] ** 2
    close(new_v, square)
    direction = wide[1] / (np.sqrt(square) + EPS)
    np.testing.assert_allclose(new_p, wide[0] - LR * direction, rtol=1e-6, atol=1e-7)
    new_p, new_buffer = oracle.sgd(p, g, buffer, LR)
    np.testing.assert_allclose(new_buffer, SGD_MOMENTUM * wide[2] + wide[1], rtol=1e-6, atol=1e-6)
    expected = wide[0] - LR * (SGD_MOMENTUM * wide[2] + wide[1])
    np.testing.assert_allclose(new_p, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_adversarial_tensors_hold_no_subnormal_number(kind):
    for seed in range(20):
        x = tensor(kind, (3, 5), seed, largest_exponent=127)
        assert x.dtype == np.float32
        assert np.isfinite(x).all()
        assert ((x == 0) | (np.abs(x) >= SMALLEST)).all()
