import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity import operands
from parity.operands import Products, round_operand

EXPONENTS = st.integers(-126, 126)


def spacing(x: float, bits: int) -> float:
    """The distance of numbers with `bits` mantissa bits near x, by the definition."""
    exponent = max(int(np.floor(np.log2(abs(x)))), -126)
    return 2.0 ** (exponent - bits)


@pytest.mark.parametrize("bits", [7, 10])
@given(mantissa=st.integers(2**23, 2**24 - 1), exponent=st.integers(-149, 100), sign=st.booleans())
def test_rounding_is_to_the_nearest_and_to_even_in_a_tie(bits, mantissa, exponent, sign):
    x = np.float32(mantissa * 2.0**exponent * (-1) ** sign)
    (rounded,) = round_operand(np.array([x]), bits)
    unit = spacing(float(x), bits)
    # Exact in float64, whose round is half to even.
    assert float(rounded) == np.round(float(x) / unit) * unit


@pytest.mark.parametrize("bits", [7, 10])
def test_what_is_no_number_stays_and_what_is_too_large_becomes_infinite(bits):
    largest = np.finfo(np.float32).max
    nan = np.array([0x7F800001, 0xFFFFFFFF, 0x7FC00000], np.uint32).view(np.float32)
    kept = np.array([0.0, -0.0, np.inf, -np.inf, 1.0, -2.0], np.float32)
    assert round_operand(kept, bits).tobytes() == kept.tobytes()
    assert round_operand(nan, bits).tobytes() == nan.tobytes()
    assert round_operand(np.array([largest, -largest]), bits).tolist() == [np.inf, -np.inf]
    # The largest with so many bits: its neighbour below the midpoint goes back to it.
    top = np.float32((2 - 2.0**-bits) * 2.0**127)
    below = np.float32((2 - 2.0 ** -(bits + 1)) * 2.0**127) - np.float32(2.0**104)
    assert round_operand(np.array([top, below]), bits).tolist() == [top, top]


@pytest.mark.parametrize("bits", [7, 10])
def test_subnormal_numbers_are_rounded_on_their_own_grid(bits):
    smallest = np.float32(2.0**-149)
    unit = np.float32(2.0 ** (-126 - bits))
    given_ = np.array([smallest, unit / 2, unit * 1.5, unit, 3 * unit + smallest], np.float32)
    assert round_operand(given_, bits).tolist() == [0.0, 0.0, 2 * unit, unit, 3 * unit]


def test_bfloat16_is_what_a_library_makes_of_it():
    # ml_dtypes is the bfloat16 of JAX and TensorFlow.
    ml_dtypes = pytest.importorskip("ml_dtypes")
    words = np.random.default_rng(0).integers(0, 2**32, 100_000, dtype=np.uint32)
    x = words.view(np.float32)
    x = x[np.isfinite(x)]
    expected = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    assert round_operand(x, 7).tobytes() == expected.tobytes()


def rounded_products(bits_of):
    """Layers in NumPy, of operands rounded to so many bits in each of the three products."""

    def linear(x, w, g):
        y, dx, dw = (lambda a, b=b: round_operand(a, b) for b in bits_of)
        return Products(y(x) @ y(w).T, dx(g) @ dx(w), dw(g).T @ dw(x))

    def conv(x, w, g):  # one pixel and one tap are all that is not zero
        flat = linear(x[:, :, 8, 8], w[:, :, 1, 1], g[:, :, 8, 8])
        wide = [np.zeros(a.shape, np.float32) for a in (g, x, w)]
        for array, values, where in zip(wide, flat, ((8, 8), (8, 8), (1, 1)), strict=True):
            array[:, :, *where] = values
        return Products(*wide)

    return {"linear": linear, "conv": conv}


@pytest.mark.parametrize("bits_of", [(22, 22, 22), (7, 10, 22), (10, 7, 7)])
def test_the_bits_of_every_product_are_seen_apart(bits_of):
    found = operands.product_bits(rounded_products(bits_of), "float32")
    for layer in ("linear", "conv"):
        names = (layer, f"{layer}_input_gradient", f"{layer}_weight_gradient")
        assert tuple(found[name] for name in names) == bits_of
