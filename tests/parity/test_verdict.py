import numpy as np
import pytest

from parity import verdict
from parity.verdict import Pool


@pytest.fixture
def pool(make_result):
    """Return a function that pools runs, each given by the fields in which it is special."""

    def build(*fields, comparable: bool = True, predictions=None) -> Pool:
        results = [make_result(**special) for special in fields]
        images = predictions or [None] * len(results)
        members = range(len(results))
        return verdict.pool(results, members, images, comparable=comparable, threshold=70.0)

    return build


@pytest.mark.parametrize(
    ("max_difference", "correlation", "category"),
    [
        (0.0, None, "Bit-exact"),
        (0.009, 0.2, "Bit-exact"),
        (0.01, 0.999, "Statistical (good)"),
        (0.49, 0.991, "Statistical (good)"),
        (0.49, 0.99, "Statistical (acceptable)"),
        (0.5, 0.999, "Statistical (acceptable)"),
        (0.87, 0.9850692095403718, "Statistical (acceptable)"),  # the article's headline group
        (1.99, 0.95, "Problem"),
        (2.0, 1.0, "Problem"),
        (2.0, None, "Problem"),
        (0.3, None, None),
    ],
)
def test_the_articles_categories(max_difference, correlation, category):
    assert verdict.category(max_difference, correlation) == category


def signs(pooled: Pool) -> dict[str, bool]:
    return {sign.name: sign.present for sign in pooled.signs}


def test_runs_alike_show_no_danger_sign(pool):
    assert signs(pool({}, {})) == {"loss gap": False, "fit": False, "correlation": False}


@pytest.mark.parametrize(("first_loss", "present"), [(2.19, False), (2.21, True)])
def test_a_loss_gap_in_epoch_1_of_more_than_a_tenth_is_a_sign(pool, first_loss, present):
    pooled = pool({}, {"train_loss": [first_loss, 1.7, 1.5, 1.2, 1.0]})
    assert signs(pooled)["loss gap"] == present
    assert pooled.signs[0].value == pytest.approx(first_loss / 2.0 - 1)
    assert pooled.signs[0].pair == (0, 1)


def test_a_loss_gap_from_zero_is_a_sign_of_no_finite_size(pool):
    pooled = pool({"train_loss": [0.0] * 5}, {})
    assert pooled.signs[0] == verdict.Sign("loss gap", True, None, (0, 1))


def test_one_run_overfitting_while_another_underfits_is_a_sign(pool):
    over = {"train_accuracy": [60.0, 70.0, 80.0, 90.0, 95.0]}  # test 72
    under = {"train_accuracy": [50.0, 55.0, 60.0, 63.0, 65.0]}
    assert signs(pool(over, {}, under))["fit"]
    assert pool(over, {}, under).signs[1].pair == (0, 2)
    assert pool(over, {}, under).signs[1].value == 30.0


def test_a_run_that_is_merely_better_is_not_overfitting(pool):
    better = {"accuracy": (70.0, 80.0, 85.0, 88.0, 90.0)}  # training accuracy 4 pp below it
    assert not signs(pool({}, better))["fit"]


def test_a_correlation_below_095_is_a_sign(pool):
    pooled = pool({}, {"accuracy": (72.0, 70.0, 68.0, 65.0, 60.0)}, {})
    assert signs(pooled)["correlation"]
    assert pooled.signs[2].pair == (0, 1)


def test_positions_are_those_in_the_results_compared(make_result):
    falling = (72.0, 70.0, 68.0, 65.0, 60.0)
    results = [make_result(), make_result(), make_result(accuracy=falling)]
    pooled = verdict.pool(results, (1, 2), [None] * 3, comparable=True, threshold=70.0)
    assert pooled.spread.correlations.lowest_pair == (1, 2)
    assert pooled.signs[2].pair == (1, 2)


def test_one_run_has_no_category_and_no_signs(pool):
    pooled = pool({})
    assert (pooled.category, pooled.signs, pooled.agreement) == (None, (), None)
    assert verdict.in_words(pooled) == ["One finished run: there is nothing to compare it with."]


def test_runs_that_are_not_comparable_have_no_agreement(pool):
    assert pool({}, {}, comparable=False).agreement is None


def test_predictions_on_other_data_are_not_compared(make_result):
    results = [make_result(), make_result(fingerprints={"data": "0" * 64})]
    images = [np.zeros(4, np.uint8)] * 2
    pooled = verdict.pool(results, (0, 1), images, comparable=True, threshold=70.0)
    assert pooled.agreement is not None
    assert pooled.agreement.predictions_percent is None


def test_bitwise_runs_are_said_to_be_so_with_digest_and_epochs(pool, make_result):
    (sentence,) = verdict.in_words(pool({}, {}))
    digest = make_result().digests[-1][:12]
    assert sentence.startswith("Bitwise identical: 2 runs agree in every weight after each of 5")
    assert digest in sentence
    assert "all 20 step losses" in sentence


def test_runs_that_differ_are_said_to_by_step_epoch_and_size(pool):
    steps = np.linspace(2.3, 0.7, 20).astype(np.float32)
    steps[6] = np.nextafter(steps[6], np.float32(9))
    digests = ["a" * 64] * 5
    words = " ".join(verdict.in_words(pool({}, {"steps": steps, "digests": digests})))
    assert "Not bitwise: a loss first differs at step 7 by 1 ulp" in words
    assert "weights first differ after epoch 1" in words
    assert "Close: up to step 20" in words
    assert 'category: "Bit-exact"' in words


def test_equal_weights_with_other_figures_are_not_called_bitwise_runs(pool):
    words = verdict.in_words(pool({}, {"accuracy": (60.0, 65.0, 68.0, 70.0, 72.5)}))[0]
    assert "weights are bitwise identical after each of 5 epochs" in words
    assert "logged figures differ" in words


def test_constant_curves_have_an_undefined_correlation(pool):
    pooled = pool({"accuracy": (10.0,) * 3}, {"accuracy": (10.0, 11.0, 10.2)})
    assert pooled.category is None
    assert "correlation of the curves undefined" in " ".join(verdict.in_words(pooled))
