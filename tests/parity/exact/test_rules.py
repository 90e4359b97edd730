from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.errors import UserError
from parity.exact import rules


@pytest.mark.parametrize(
    ("num_terms", "bits"),
    [
        (1, 20),
        (2**13, 20),
        (2**13 + 1, 19),
        (128 * 32 * 32, 18),  # the first layer's weight gradient at the article's batch size
        (128 * 32 * 32 + 1, 17),
        (2**31, 11),
    ],
)
def test_operand_bits_of_known_contractions(num_terms, bits):
    assert rules.operand_bits(num_terms) == bits


@given(st.integers(1, 2**31))
def test_sums_of_products_stay_within_the_mantissa_and_one_bit_more_would_not(num_terms):
    bits = rules.operand_bits(num_terms)
    doublings = next(k for k in range(32) if 2**k >= num_terms)
    assert num_terms * 4**bits <= 2**53
    assert bits == rules.MAX_OPERAND_BITS or 2 * (bits + 1) + doublings > 53


@given(st.integers(1, 2**47))
def test_sums_of_terms_stay_within_the_mantissa(num_terms):
    bits = rules.term_bits(num_terms)
    assert num_terms * 2**bits <= 2**52
    assert 2 * num_terms * 2**bits > 2**51


def test_a_contraction_that_leaves_too_few_bits_is_refused():
    with pytest.raises(UserError, match="Use a smaller batch or a narrower layer"):
        rules.operand_bits(2**31 + 1)


def test_the_smallest_normal_number_is_that_of_float32():
    assert np.finfo(np.float32).smallest_normal == rules.SMALLEST_NORMAL


@pytest.mark.parametrize("beta", [0.9, 0.999])
def test_bias_corrections_are_those_of_adam_until_they_are_1(beta):
    table = rules.bias_corrections(beta)
    assert table.dtype == np.float32
    assert table[-1] == 1
    assert (np.diff(table) <= 0).all()
    assert (table[:-1] > 1).all()
    for step in (1, 2, 10, len(table) // 2, len(table), len(table) + 1000):
        exact = 1 / (1 - Fraction(beta) ** step)
        # The table holds float32: rounding to nearest is 2**-24 away at most.
        assert abs(Fraction(float(table[min(step, len(table)) - 1])) / exact - 1) < 2.0**-23
