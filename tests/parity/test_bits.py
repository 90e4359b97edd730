import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from parity import bits

LOSSES = np.linspace(2.3, 0.7, 20).astype(np.float32)

losses = st.lists(hnp.arrays(np.float32, 6, elements=st.floats(0, 4, width=32)), min_size=2)


def flipped(array: np.ndarray, position: int, bit: int = 0) -> np.ndarray:
    """Return a copy with one bit of one value turned over."""
    pattern = array.copy().view(f"u{array.itemsize}")
    pattern[position] ^= pattern.dtype.type(1 << bit)
    return pattern.view(array.dtype)


@pytest.mark.parametrize("position", [0, 7, 19])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_one_flipped_bit_in_a_loss_is_found(position, kind):
    whole = LOSSES.astype(kind)
    step = bits.first_different_step([whole, whole.copy(), flipped(whole, position)])
    assert step == bits.Step(position + 1, 1)


def test_a_flipped_sign_of_zero_is_a_difference_of_no_ulp():
    zeros = np.zeros(3, np.float32)
    assert bits.first_different_step([zeros, flipped(zeros, 1, bit=31)]) == bits.Step(2, 0)


def test_equal_bits_have_no_first_step():
    assert bits.first_different_step([LOSSES, LOSSES.copy()]) is None
    assert bits.first_different_step([LOSSES, LOSSES[:5].copy()]) is None
    assert bits.first_different_step([LOSSES, LOSSES[:0]]) is None


def test_precisions_differ_from_the_first_step_on():
    assert bits.first_different_step([LOSSES, LOSSES.astype(np.float64)]) == bits.Step(1, None)


def test_nan_has_bits_but_no_ulp_distance():
    broken = LOSSES.copy()
    broken[3] = np.nan
    assert bits.first_different_step([LOSSES, broken]) == bits.Step(4, None)


@given(losses, st.randoms(use_true_random=False))
def test_the_order_of_the_runs_changes_nothing(losses, random):
    shuffled = random.sample(losses, len(losses))
    assert bits.first_different_step(losses) == bits.first_different_step(shuffled)
    assert bits.loss_closeness(losses) == bits.loss_closeness(shuffled)


def test_a_changed_digest_is_found_even_where_later_ones_agree():
    assert bits.first_different_epoch([["a", "b", "c"], ["a", "x", "c"]]) == 2
    assert bits.first_different_epoch([["a", "b", "c"], ["a", "b"]]) is None


def test_closeness_is_relative_and_stops_at_its_step():
    late = np.linspace(2.0, 1.0, 60)
    early = late.copy()
    early[bits.CLOSE_STEP - 1] *= 1.5
    late[bits.CLOSE_STEP] *= 2
    found = bits.loss_closeness([late, early])
    assert found is not None
    assert found.step == bits.CLOSE_STEP
    assert found.difference == pytest.approx(1 / 3)
    assert not found.close


def test_closeness_is_stricter_in_float64():
    off = LOSSES.astype(np.float64) * (1 + 1e-6)
    strict = bits.loss_closeness([LOSSES.astype(np.float64), off])
    assert strict is not None
    assert not strict.close
    loose = bits.loss_closeness([LOSSES, off.astype(np.float32)])
    assert loose is not None
    assert loose.close


def test_losses_of_zero_are_close_to_one_another():
    assert bits.loss_closeness([np.zeros(3), np.zeros(3)]) == bits.Closeness(3, 0.0, 1e-8)
    assert bits.loss_closeness([np.zeros(0), np.zeros(3)]) is None


def test_predictions_differ_where_not_all_runs_agree():
    a = np.array([0, 1, 2, 3], np.uint8)
    b, c = a.copy(), a.copy()
    b[0], c[1] = 9, 9
    assert bits.predictions_differ([a, a]) == 0.0
    assert bits.predictions_differ([a, b]) == 25.0
    assert bits.predictions_differ([a, b, c]) == bits.predictions_differ([c, a, b]) == 50.0


def test_predictions_of_other_test_sets_or_none_are_not_compared():
    a = np.zeros(4, np.uint8)
    assert bits.predictions_differ([a, None]) is None
    assert bits.predictions_differ([None, a]) is None
    assert bits.predictions_differ([a, a[:3]]) is None


def test_agreement_of_copies_is_bitwise(make_result):
    predictions = [np.zeros(4, np.uint8)] * 2
    found = bits.agreement([make_result(), make_result()], predictions)
    assert found.bitwise
    assert found.digest == make_result().digests[-1]
    assert (found.num_epochs, found.num_steps, found.predictions_percent) == (5, 20, 0.0)


@pytest.mark.parametrize("fault", ["digest", "loss", "figure", "prediction"])
def test_any_planted_fault_ends_the_bitwise_claim(make_result, fault):
    whole = make_result()
    steps, digests = whole.step_losses, list(whole.digests)
    accuracy = whole.curves.test_accuracy.tolist()
    predictions = np.zeros(100, np.uint8)
    if fault == "loss":
        steps = flipped(steps, 9)
    elif fault == "digest":
        digests[1] = "0" * 64
    elif fault == "figure":
        accuracy[2] = np.nextafter(accuracy[2], 100)
    else:
        predictions[17] = 1
    other = make_result(
        steps=steps,
        digests=digests,
        accuracy=accuracy,
        train_accuracy=whole.curves.train_accuracy.tolist(),
    )
    found = bits.agreement([whole, other], [np.zeros(100, np.uint8), predictions])
    assert not found.bitwise
    assert (found.first_step == bits.Step(10, 1)) == (fault == "loss")
    assert (found.first_epoch == 2) == (fault == "digest")
    assert found.figures_equal == (fault != "figure")
    assert found.predictions_percent == (1.0 if fault == "prediction" else 0.0)


def test_agreement_is_over_the_common_epochs(make_result):
    short = make_result(accuracy=(60.0, 65.0), status="running", steps=make_result().step_losses)
    found = bits.agreement([make_result(), short], None)
    assert (found.num_epochs, found.num_steps) == (2, 8)
    assert found.digest == make_result().digests[1]
    assert found.bitwise


def test_a_run_without_epochs_agrees_in_nothing(make_result):
    found = bits.agreement([make_result(), make_result(accuracy=(), status="running")], None)
    assert not found.bitwise
    assert not found.figures_equal
    assert (found.num_epochs, found.num_steps, found.closeness) == (0, 0, None)


def test_twins_are_found_whatever_their_names(make_result):
    other = make_result("c", accuracy=(60.0, 65.0, 68.0, 70.0, 72.01))
    found = bits.twins([make_result("a"), other, make_result("b", framework="jax")])
    assert found == [bits.Twins((0, 2), 5, make_result().digests[-1])]
