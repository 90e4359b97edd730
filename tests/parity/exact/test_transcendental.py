"""exp and log hold what they state. `make proof` shows it on every argument that there is."""

import time
from decimal import Decimal, localcontext

import jax
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from parity.exact.transcendental import (
    ARGUMENT_BITS,
    EXP_BITS,
    LOG_BITS,
    SMALLEST_ARGUMENT,
    exp,
    exp_series,
    log,
)

LARGEST = int(-SMALLEST_ARGUMENT) << ARGUMENT_BITS
LOG2 = 0.6931471805599453
RELATIVE_BOUND = 2.0**-28
LOG_BOUND = 2.0**-27
CHUNK = 2**17  # int64 arrays of a mebibyte stay in the cache

multiples = [round(Decimal(2).ln() * 2**ARGUMENT_BITS * k) for k in range(50)]
"""Where another halving sets in, about."""
arguments = st.integers(0, LARGEST) | st.builds(
    lambda k, offset: min(max(k + offset, 0), LARGEST),
    st.sampled_from(multiples),
    st.integers(-(2**22), 2**22),
)
ratios = st.integers(2**EXP_BITS, 10 * 2**EXP_BITS) | st.integers(0, 2**40).map(
    lambda above: 2**EXP_BITS + above
)


def sample(size: int) -> np.ndarray:
    """Return arguments of exp, int64: the whole range, near 0 and near multiples of log 2."""
    rng = np.random.default_rng(0)
    near = np.array(multiples)[rng.integers(1, 49, size)] + rng.integers(-(2**22), 2**22, size)
    spread = rng.integers(0, LARGEST + 1, size)
    small = rng.integers(0, 2 ** rng.integers(1, 41, size))
    return np.concatenate([spread, small, near, [0, LARGEST]])


@given(arguments)
def test_exp_is_as_near_as_it_states(argument):
    with localcontext(prec=40):
        true = (Decimal(-argument) / 2**ARGUMENT_BITS).exp() * 2**EXP_BITS
        assert abs(exp(argument) - true) <= true * Decimal(RELATIVE_BOUND) + 1


@given(ratios)
def test_log_is_as_near_as_it_states(ratio):
    with localcontext(prec=40):
        true = (Decimal(ratio) / 2**EXP_BITS).ln()
        assert abs(Decimal(log(ratio, 10)) / 2**LOG_BITS - true) < Decimal(LOG_BOUND)


def test_exp_of_0_is_1_and_of_the_largest_argument_0():
    assert exp(0) == 2**EXP_BITS
    assert exp(LARGEST) == 0


def test_log_of_powers_of_two_are_the_rounded_multiples_of_log_2():
    rounded = round(Decimal(2).ln() * 2**LOG_BITS)
    for power in range(14):
        assert log(2 ** (EXP_BITS + power), 2**14 - 1) == power * rounded


@given(arguments)
def test_int64_is_wide_enough_for_exp(argument):
    # Python's integers cannot overflow, int64 would wrap around.
    assert int(exp(np.int64(argument))) == exp(argument)


@given(ratios)
def test_int64_is_wide_enough_for_log(ratio):
    assert int(log(np.array([ratio]), 10)[0]) == log(ratio, 10)


@pytest.mark.parametrize("halvings", range(1, 50))
def test_exp_hardly_rises_where_another_halving_sets_in(halvings):
    around = exp(next_argument(halvings) + np.arange(-(2**20), 2**20, 2**8))
    assert np.diff(around).max() <= (2 ** (EXP_BITS - 30) >> halvings) + 1


def test_log_never_falls():
    for start in (2**EXP_BITS, 2 ** (EXP_BITS + 1) - 2**36, 2 ** (EXP_BITS + 3) - 2**36):
        values = log(np.arange(start, start + 2**37, 2**17), 10)
        assert (np.diff(values) >= 0).all()


def test_no_argument_leaves_the_range_of_the_series():
    # The rest is largest just before another halving sets in, and smallest just after.
    rests = []
    for halvings in range(50):
        first = next_argument(halvings)
        last = min(next_argument(halvings + 1) - 1, LARGEST)
        rests += [rest_of(first, halvings), rest_of(last, halvings)]
    assert min(rests) >= 0
    assert max(rests) <= LARGEST_REST


def next_argument(halvings: int) -> int:
    """Return the first argument with so many halvings."""
    low, high = 0, LARGEST + 2**ARGUMENT_BITS
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if num_halvings(middle) >= halvings else (middle + 1, high)
    return low


def num_halvings(argument: int) -> int:
    """Return how often exp's series is halved, by the definition in its source."""
    return ((argument >> 20) * int(2**20 / LOG2)) >> ARGUMENT_BITS


def rest_of(argument: int, halvings: int) -> int:
    return (argument - halvings * round(LOG2 * 2**ARGUMENT_BITS)) >> (ARGUMENT_BITS - 31)


LARGEST_REST = round(LOG2 * 2**31) + 2**15


def test_numpy_pytorch_and_jax_agree_in_exp():
    arguments = sample(300_000)
    expected = exp(arguments)
    assert np.array_equal(exp(torch.from_numpy(arguments)).numpy(), expected)
    with jax.enable_x64(True):
        assert np.array_equal(jax.jit(exp)(arguments), expected)


def test_numpy_pytorch_and_jax_agree_in_log():
    ratios = np.random.default_rng(1).integers(2**EXP_BITS, 10 * 2**EXP_BITS, 500_000)
    expected = log(ratios, 10)
    assert np.array_equal(log(torch.from_numpy(ratios), 10).numpy(), expected)
    with jax.enable_x64(True):
        assert np.array_equal(jax.jit(log, static_argnums=1)(ratios, 10), expected)


def chunks(what: str, end: int):
    """Yield the integers below `end` in arrays, and print how far they are."""
    begin = time.perf_counter()
    for number, start in enumerate(range(0, end, CHUNK)):
        if number % 1024 == 0:
            seconds = time.perf_counter() - begin
            print(f"{what}: {start / end:.1%} after {seconds:.0f} s", flush=True)
        yield np.arange(start, min(start + CHUNK, end))


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_exp_of_every_float32_from_0_to_34_is_as_near_as_it_states():
    end = int(np.float32(-SMALLEST_ARGUMENT).view(np.int32)) + 1
    worst = 0.0
    for patterns in chunks("exp of float32", end):
        distance = patterns.astype(np.int32).view(np.float32).astype(np.float64)
        units = np.rint(distance * 2.0**ARGUMENT_BITS).astype(np.int64)
        # NumPy's float64 exp is within 1e-15; rounding to units of 2**-40 adds 5e-13.
        true = np.exp(-distance)
        error = np.abs(exp(units) * 2.0**-EXP_BITS - true)
        # Whole units of 2**-48 are the rounding of the result, not a relative error.
        worst = max(worst, float(np.max((error - 2.0**-EXP_BITS) / true)))
    print(f"{end:,} float32: relative error {worst:.3e} = 2**{np.log2(worst):.2f}")
    assert worst < RELATIVE_BOUND


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_exp_series_is_near_and_never_rises_by_more_than_a_unit_on_its_whole_range():
    worst, num_rises, last = 0.0, 0, 2**31
    for rest in chunks("exp's series", LARGEST_REST + 1):
        value = exp_series(rest)
        true = np.exp(rest * -(2.0**-31))
        worst = max(worst, float(np.max(np.abs(value * 2.0**-31 - true) / true)))
        steps = np.diff(value, prepend=last)
        assert steps.max() <= 1
        num_rises += int((steps > 0).sum())
        last = value[-1]
    print(
        f"{LARGEST_REST + 1:,} rests: relative error {worst:.3e} = 2**{np.log2(worst):.2f}, "
        f"{num_rises:,} rises by a unit"
    )
    # The rest itself is rounded down to 2**-31, and up to 49 multiples of log 2 to 2**-41 each.
    assert worst + 2.0**-31 + 49 * 2.0**-41 < RELATIVE_BOUND


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_log_is_near_and_never_falls_from_1_to_2():
    worst, last = 0.0, 0
    for above in chunks("log", 2**31):
        value = log((above + 2**31) << (EXP_BITS - 31), 1)
        error = np.abs(value * 2.0**-LOG_BITS - np.log1p(above * 2.0**-31))
        worst = max(worst, float(error.max()))
        assert value[0] >= last
        assert (np.diff(value) >= 0).all()
        last = value[-1]
    print(f"{2**31:,} arguments: absolute error {worst:.3e} = 2**{np.log2(worst):.2f}")
    # The argument is rounded down to 2**-31, and up to 13 multiples of log 2 to 2**-32 each.
    assert worst + 2.0**-31 + 13 * 2.0**-32 < LOG_BOUND
