import itertools
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from parity import noise
from parity.noise import Contest, contest, runs_needed


def contested(*rows: tuple[str, str, float]) -> Contest:
    """Return the contest of runs given as (device, block, accuracy)."""
    found = contest([r[2] for r in rows], [r[0] for r in rows], [r[1] for r in rows])
    assert found is not None
    return found


def study(num_seeds: int, effect: float, *, noise: float = 0.2, devices: str = "ab", seed: int = 0):
    """Return runs of all devices with each seed; the last device is `effect` above the others."""
    random = np.random.default_rng(seed)
    return [
        (device, f"{s}", base + effect * (device == devices[-1]) + random.normal(0, noise))
        for s, base in enumerate(random.normal(77, 2, num_seeds))
        for device in devices
    ]


def test_a_real_effect_is_shown_and_measured():
    found = [contested(*study(8, 1.0, seed=seed)) for seed in range(200)]
    # Only the arrangement itself and its mirror are as clear.
    assert {contest.p_value for contest in found} == {2 / 2**8}
    assert {(c.largest.first, c.largest.second) for c in found} == {("b", "a")}
    covered = [c.largest.low < 1.0 < c.largest.high for c in found]
    # Three standard errors of a share of 200 are 0.05.
    assert np.mean(covered) == pytest.approx(0.95, abs=0.05)


@pytest.mark.parametrize("devices", ["ab", "abcd"])
def test_no_effect_is_shown_in_five_of_a_hundred_studies_and_not_more(devices):
    shown = [contested(*study(6, 0.0, devices=devices, seed=s)).shown for s in range(200)]
    # Three standard errors of a share of 200 are 0.05. Never to show any would be wrong, too.
    assert 0 < np.mean(shown) < 0.10


def test_two_devices_are_the_paired_t_test():
    runs = study(9, 0.3, seed=4)
    found = contested(*runs)
    a, b = ([x for device, _, x in runs if device == name] for name in "ab")
    paired = scipy.stats.ttest_rel(b, a).confidence_interval(0.95)
    assert (found.largest.low, found.largest.high) == pytest.approx((paired.low, paired.high))
    assert found.num_free == 8
    # A difference of two runs has twice the variance of one.
    apart = np.subtract(b, a)
    assert found.noise_std == pytest.approx(np.std(apart, ddof=1) / math.sqrt(2))


def test_p_values_are_those_of_scipys_permutation_test():
    runs = study(9, 0.1, seed=3)
    a, b = ([x for device, _, x in runs if device == name] for name in "ab")
    scipys = scipy.stats.permutation_test(
        (a, b), lambda x, y: np.mean(x) - np.mean(y), permutation_type="samples", n_resamples=np.inf
    )
    assert contested(*runs).exact
    assert contested(*runs).p_value == pytest.approx(scipys.pvalue)


def test_p_values_in_one_block_are_those_of_all_arrangements():
    runs = [("a", "", 1.0), ("a", "", 1.2), ("b", "", 2.0), ("b", "", 1.9), ("c", "", 1.5)]
    finals = [x for *_, x in runs]

    def between(order) -> float:
        groups = order[:2], order[2:4], order[4:]
        return sum(len(g) * (np.mean(g) - np.mean(finals)) ** 2 for g in groups)

    all_of_them = [between(order) for order in itertools.permutations(finals)]
    expected = np.mean([x >= between(finals) - 1e-9 for x in all_of_them])
    found = contested(*runs)
    assert found.p_value == expected
    assert found.lowest_p_value == np.mean([x >= max(all_of_them) - 1e-9 for x in all_of_them])


def test_a_sample_of_arrangements_comes_near_all_of_them(monkeypatch):
    runs = study(9, 0.15, seed=3)
    exact = contested(*runs)
    monkeypatch.setattr(noise, "_EXACT", 500)
    sampled = contested(*runs)
    assert not sampled.exact
    # Four standard errors of a share of 499 draws are 0.09 at most.
    assert sampled.p_value == pytest.approx(exact.p_value, abs=0.09)


def test_blocks_are_taken_out():
    # Device b is 0.5 above a in every block, but runs mostly in the lower one.
    runs = [("a", "high", 80.0), ("a", "high", 80.1), ("b", "high", 80.5), ("b", "high", 80.6)]
    runs += [("a", "low", 70.0), ("b", "low", 70.5), ("b", "low", 70.6), ("b", "low", 70.4)]
    found = contested(*runs)
    assert found.largest[:2] == ("b", "a")
    assert found.largest.difference == pytest.approx(0.5, abs=0.02)  # the repeats' spread is 0.05


def test_unconnected_devices_are_not_set_against_each_other():
    # c stands 1 above a and b, f 1 below d and e; nothing is known of c against f.
    high = [("a", "1", 70.0), ("b", "1", 70.0), ("c", "1", 71.0)]
    low = [("d", "2", 70.0), ("e", "2", 70.0), ("f", "2", 69.0)]
    found = contested(*high, *low)
    assert found.largest.difference == pytest.approx(1.0)
    assert {found.largest.first, found.largest.second} in ({"a", "c"}, {"b", "c"}, {"d", "f"})
    assert found.levels == ("a", "b", "c", "d", "e", "f")


def test_without_repeats_the_noise_is_unknown():
    found = contested(("a", "", 70.0), ("b", "", 71.0))
    assert (found.noise_std, found.largest.low, found.detectable) == (None, None, None)
    assert (found.p_value, found.lowest_p_value) == (1.0, 1.0)
    assert not found.shown


def test_few_runs_cannot_show_anything_however_clear():
    runs = [
        (device, f"{s}", 70.0 + 5 * (device == "b") + s / 50) for s in range(3) for device in "ab"
    ]
    found = contested(*runs)
    assert found.lowest_p_value == found.p_value == 0.25
    assert not found.shown


def test_equal_accuracies_have_no_noise_and_no_effect():
    found = contested(*((device, f"{s}", 70.0 + s) for s in range(4) for device in "ab"))
    assert (found.noise_std, found.largest.difference, found.p_value) == (0.0, 0.0, 1.0)


def test_exact_repeats_leave_an_effect_without_noise():
    found = contested(*((d, f"{s}", 70.0 + s + 0.3 * (d == "b")) for s in range(6) for d in "ab"))
    assert found.noise_std == 0.0
    assert found.shown
    assert found.largest.low == found.largest.high == pytest.approx(0.3)


@pytest.mark.parametrize(
    "runs",
    [
        [],
        [("a", "1", 70.0), ("b", "2", 71.0)],
        [("a", "1", 70.0), ("a", "1", 71.0)],
    ],
)
def test_devices_that_no_block_sets_side_by_side_are_no_contest(runs):
    assert contest([r[2] for r in runs], [r[0] for r in runs], [r[1] for r in runs]) is None


def test_the_detectable_difference_is_found_in_eight_of_ten_studies():
    reference = contested(*study(10, 0.0, noise=0.2, seed=1))
    # At the true noise instead of the estimated one.
    effect = reference.detectable / reference.noise_std * 0.2
    found = 0
    for seed in range(400):
        low = contested(*study(10, effect, noise=0.2, seed=seed)).largest
        found += low.low > 0 and low.first == "b"
    # Three standard errors of a share of 400 are 0.06.
    assert found / 400 == pytest.approx(noise.POWER, abs=0.06)


def test_the_runs_needed_detect_the_margin_and_one_less_does_not():
    for num_levels in (2, 6):
        runs = runs_needed(0.4, num_levels, margin=0.5)
        pairs = math.comb(num_levels, 2)

        def power(n: int, levels: int = num_levels, pairs: int = pairs) -> float:
            free = (levels - 1) * (n - 1)
            limit = scipy.stats.t.ppf(1 - 0.05 / 2 / pairs, free)
            return scipy.stats.nct.sf(limit, free, 0.5 / (0.4 * math.sqrt(2 / n)))

        assert power(runs) >= 0.8 > power(runs - 1)


def test_runs_needed_agree_with_the_paired_t_test():
    # Golden: statsmodels 0.15.0, TTestPower().solve_power(0.5, power=0.8, alpha=0.05), 33.367,
    # whose unit is the std of differences, the square root of two times that of a run.
    assert runs_needed(1 / math.sqrt(2), 2, margin=0.5) == 34


@pytest.mark.parametrize("num_levels", [2, 3, 4])
def test_the_runs_needed_can_show_something_at_all(num_levels):
    devices = "abcd"[:num_levels]
    needed = runs_needed(1e-6, num_levels)
    assert needed is not None

    def lowest(runs: int) -> float:
        blocks = range(runs)
        rows = [(d, str(s), 70.0 + s + i) for s in blocks for i, d in enumerate(devices)]
        return contested(*rows).lowest_p_value

    assert lowest(needed) < noise.LEVEL <= lowest(needed - 1)


def test_hopeless_noise_needs_more_runs_than_anybody_makes():
    assert runs_needed(1e4, 2) is None


accuracies = st.lists(st.integers(6900, 7100).map(lambda x: x / 100), min_size=8, max_size=8)


@given(accuracies, st.permutations(range(8)))
def test_the_order_of_the_runs_changes_nothing_that_counts(finals, order):
    rows = [("ab"[i % 2], str(i // 4), x) for i, x in enumerate(finals)]
    one, other = contested(*rows), contested(*(rows[i] for i in order))
    assert one.p_value == other.p_value
    assert one.noise_std == pytest.approx(other.noise_std, abs=1e-9)  # rounding
    assert abs(one.largest.difference) == pytest.approx(abs(other.largest.difference), abs=1e-9)


def test_thousands_of_runs_take_seconds():
    runs = study(2500, 0.05, noise=0.3, devices="abcd")
    found = contested(*runs)
    assert found.num_runs == 10_000
    assert found.shown
