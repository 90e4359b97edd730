import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from parity import curves, results

# Final accuracies of the article's headline group, from its table per device: both runs of TPU,
# L4, A100 and T4 are that table's minimum and maximum.
FINALS = {
    "RTX 3060": [78.28, 77.63, 77.80, 77.98],
    "RTX 5090": [77.74, 77.84, 77.77, 77.91],
    "A100": [77.81, 77.61],
    "L4": [77.95, 77.75],
    "T4": [77.59, 77.68],
    "TPU": [78.46, 78.45],
}

# Accuracies over 10,000 images move in steps of 0.01.
accuracies = st.lists(
    st.integers(1000, 9600).map(lambda correct: correct / 100), min_size=3, max_size=3
)
groups = st.lists(accuracies, min_size=2, max_size=6)


def spread(test_accuracies) -> curves.Spread:
    return curves.spread(
        [np.array(curve) for curve in test_accuracies],
        [np.full(len(curve), 1.5) for curve in test_accuracies],
        threshold=70.0,
    )


def test_the_published_spread_of_final_accuracies():
    finals = [x for device in FINALS.values() for x in device]
    figures = spread([[x] for x in finals])
    # Source: the article's headline group, every printed digit.
    assert figures.mean_accuracy == 77.890625
    assert figures.std_accuracy == 0.2688277503811686
    assert (figures.min_accuracy, figures.max_accuracy) == (77.59, 78.46)
    assert figures.max_difference == 0.87


def test_the_published_mean_correlation(article_results):
    read = results.read(sorted(article_results.glob("deterministic_*.json"))).results
    label = "seed_42_tf32_False_amp_False_w0"
    group = [r.curves.test_accuracy for r in read if r.configuration["label"] == label]
    # Source: the article's Mean_Correlation over its 120 pairs, every printed digit.
    assert curves.correlations(np.stack(group)).mean == 0.9850692095403718
    assert curves.correlations(np.stack(group[::-1])).mean == 0.9850692095403718
    assert len(group) == 16


@pytest.mark.parametrize(
    ("device", "mean", "std"),
    [
        ("TPU", 78.455, 0.005),
        ("RTX 3060", 77.9225, 0.240663),
        ("L4", 77.85, 0.10),
        ("RTX 5090", 77.815, 0.065765),
        ("A100", 77.71, 0.10),
        ("T4", 77.635, 0.045),
    ],
)
def test_the_published_table_per_device(device, mean, std):
    # Source: the article's table, whose figures are rounded to six decimals.
    figures = spread([[x] for x in FINALS[device]])
    assert figures.mean_accuracy == pytest.approx(mean, abs=5e-7)
    assert figures.std_accuracy == pytest.approx(std, abs=5e-7)


@given(groups)
def test_correlation_agrees_with_scipy(test_accuracies):
    varying = [curve for curve in test_accuracies if len(set(curve)) > 1]
    found = curves.correlations(np.array(test_accuracies))
    expected = [
        scipy.stats.pearsonr(a, b).statistic for i, a in enumerate(varying) for b in varying[:i]
    ]
    assert found.num_undefined == math.comb(len(test_accuracies), 2) - len(expected)
    if expected:
        # Rounding: sums of three products of two digits each.
        assert found.mean == pytest.approx(np.mean(expected), abs=1e-9)
        assert found.lowest == pytest.approx(min(expected), abs=1e-9)
    else:
        assert found.mean is None


@given(groups, st.randoms(use_true_random=False))
def test_the_order_of_the_runs_changes_no_bit(test_accuracies, random):
    shuffled = random.sample(test_accuracies, len(test_accuracies))
    one, other = spread(test_accuracies), spread(shuffled)
    for name in ("mean_accuracy", "std_accuracy", "max_difference", "stability"):
        assert getattr(one, name) == getattr(other, name)
    assert one.correlations.mean == other.correlations.mean
    assert one.correlations.lowest == other.correlations.lowest


@given(groups)
def test_the_sum_of_the_correlations_is_exact(test_accuracies):
    every = np.array(test_accuracies)
    varying = every[every.min(axis=1) != every.max(axis=1)]
    if len(varying) < 2:
        return
    (block,) = curves._blocks(varying)
    pairs = [float(block.r[i, j]) for j in range(len(varying)) for i in range(j)]
    # Fractions are exact; what is below 2**-93 of a tiny r may be lost.
    exact = sum(map(Fraction, pairs))
    assert abs(Fraction(block.total(), 2**93) - exact) <= len(pairs) * Fraction(1, 2**94)
    assert curves.correlations(every).mean == math.fsum(pairs) / len(pairs)


def test_blocks_change_nothing(monkeypatch):
    some = np.random.default_rng(0).normal(size=(11, 5))
    whole = curves.correlations(some)
    monkeypatch.setattr(curves, "_BLOCK", 3)
    assert curves.correlations(some) == whole


def test_the_lowest_pair_is_named():
    up, down = [1.0, 2.0, 3.0], [3.0, 2.0, 1.0]
    found = curves.correlations(np.array([up, up, [5.0, 5.0, 5.0], down]))
    assert (found.lowest, found.lowest_pair) == (-1.0, (0, 3))
    assert found.num_undefined == 3


@pytest.mark.parametrize(
    "test_accuracies",
    [
        [[77.1] * 10, [60.0, *[77.1] * 9]],
        [[70.0], [71.0]],
        [[60.0, 70.0], [70.0, 60.0]],
        [[60.0, 70.0, 75.0]],
    ],
)
def test_correlation_of_a_constant_curve_two_epochs_or_one_run_is_undefined(test_accuracies):
    found = curves.correlations(np.array(test_accuracies))
    assert (found.mean, found.lowest, found.lowest_pair) == (None, None, None)


def test_pearson_of_two_curves():
    assert curves.pearson(np.array([1.0, 2.0, 3.0]), np.array([5.0, 4.0, 3.0])) == -1.0
    assert curves.pearson(np.array([1.0, 2.0, 3.0]), np.array([5.0, 5.0, 5.0])) is None


def test_a_difference_of_a_hundredth_is_not_less_than_one():
    assert 78.46 - 78.45 < 0.01
    assert curves.difference(78.46, 78.45) == 0.01


def test_unequal_lengths_are_cut_to_the_common_epochs():
    figures = spread([[60.0, 70.0, 80.0], [61.0, 72.0]])
    assert (figures.num_epochs, figures.longest) == (2, 3)
    assert (figures.min_accuracy, figures.max_accuracy) == (70.0, 72.0)


def test_convergence_and_stability_are_those_of_the_mean_curve():
    figures = spread([[60.0, 72.0], [60.0, 68.0]])
    assert figures.threshold_epoch == 2
    assert figures.stability == 5.0


@pytest.mark.parametrize(("threshold", "epoch"), [(60.0, 1), (60.01, 2), (90.0, None)])
def test_a_threshold_is_reached_at_equality(threshold, epoch):
    assert curves.epoch_reaching(np.array([60.0, 70.0, 65.0]), threshold) == epoch


def test_equivalence_agrees_with_scipys_welch_interval():
    a, b = [94.01, 94.12, 93.95, 94.20], [94.10, 93.90, 94.05]
    found = curves.equivalence(a, b)
    assert found is not None
    welch = scipy.stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.90)
    assert (found.low, found.high) == pytest.approx((welch.low, welch.high), rel=1e-9)
    assert found.margin == max(-found.low, found.high)
    assert not found.paired


def test_paired_equivalence_agrees_with_scipys_paired_interval():
    a, b = [94.01, 94.12, 93.95, 94.20], [93.90, 94.05, 93.80, 94.16]
    found = curves.paired_equivalence([x - y for x, y in zip(a, b, strict=True)])
    assert found is not None
    paired = scipy.stats.ttest_rel(a, b).confidence_interval(0.90)
    assert (found.low, found.high) == pytest.approx((paired.low, paired.high), rel=1e-9)
    assert found.paired


@pytest.mark.parametrize("differences", [[0.3], [0.3, 0.3, 0.3]])
def test_paired_equivalence_is_unknown_with_one_seed_or_no_spread(differences):
    assert curves.paired_equivalence(differences) is None


def test_equivalence_is_unknown_without_spread_or_with_one_run():
    assert curves.equivalence([90.0, 90.0], [91.0, 91.0]) is None
    assert curves.equivalence([90.0], [91.0, 92.0]) is None


@given(accuracies, accuracies)
def test_swapping_the_groups_mirrors_the_interval(a, b):
    one, other = curves.equivalence(a, b), curves.equivalence(b, a)
    if one is None or other is None:
        assert one is other
    else:
        assert (one.low, one.high) == pytest.approx((-other.high, -other.low))
