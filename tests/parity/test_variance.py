"""The parts of a variance are found where they were put, with intervals that hold the truth."""

import numpy as np
import pytest
from scipy import stats

from parity.variance import (
    FACTORS,
    INTERACTION,
    NOISE,
    PARTS,
    SEED,
    Component,
    Repeats,
    exceeds,
    split,
)


def parts(values: np.ndarray, **options) -> dict[str, Component]:
    return {part.name: part for part in split(values, **options)}


def levels(number: int, std: float) -> np.ndarray:
    """Return equidistant levels with a mean of 0 and a population standard deviation."""
    values = np.linspace(-1, 1, number) if number > 1 else np.zeros(1)
    return values * (std / values.std() if std and number > 1 else 0)


def study(rng, shape, *, framework=0.0, platform=0.0, interaction=0.0, seed=0.0, noise=0.0):
    """Return results of shape (frameworks, platforms, seeds, 1), parts given as std."""
    f, p, s = shape
    product = np.outer(levels(f, 1), levels(p, 1)) * interaction
    values = levels(f, framework)[:, None, None] + levels(p, platform)[:, None] + product[..., None]
    values = values + rng.normal(0, 1, s) * seed + rng.normal(0, 1, shape) * noise
    return values[..., None]


def test_without_noise_every_part_is_what_was_put_there():
    rng = np.random.default_rng(0)
    clean = study(rng, (2, 3, 5), framework=0.3, platform=0.2, interaction=0.1)
    seeds = rng.normal(0, 1, 5)
    found = parts(clean + seeds[:, None])
    # Rounding of numbers near 1.
    assert [found[name].variance for name in PARTS] == pytest.approx(
        [0.09, 0.04, 0.01, seeds.var(ddof=1), 0.0], abs=1e-12
    )


def sum_of_squares(values: np.ndarray, axes: tuple[int, ...]) -> float:
    """Return the sum of squares of a term of an analysis of variance, by least squares."""
    shape = values.shape
    labels = np.indices(shape).reshape(3, -1)

    def fitted(which: list[tuple[int, ...]]) -> float:
        columns = [np.ones((values.size, 1))]
        for term in which:
            key = np.ravel_multi_index(labels[list(term)], [shape[a] for a in term])
            columns.append(np.eye(key.max() + 1)[key])
        design = np.concatenate(columns, axis=1)
        y = values.ravel()
        return float(((design @ np.linalg.lstsq(design, y, rcond=None)[0]) ** 2).sum())

    below = [term for term in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2)) if set(term) < set(axes)]
    return fitted([*below, axes]) - fitted(below)


def test_estimates_are_those_of_an_analysis_of_variance():
    # Mean squares by regression; estimates from their expectations in the mixed model with fixed
    # factors and random seeds, Montgomery, Design and Analysis of Experiments, 13.3. A factor's is
    # of its levels as a population: sum of squared effects over their number.
    f, p, s = shape = 2, 3, 4
    y = study(np.random.default_rng(1), shape, framework=3, platform=2, interaction=2, noise=1)
    found = parts(y)
    squares = {
        axes: sum_of_squares(y[..., 0], axes)
        for axes in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2))
    }

    def expected(axes, count, free):
        error = squares[(*axes, 2)] / (free * (s - 1))
        return (squares[axes] / free - error) * free / (f * p * s)

    assert found["framework"].variance == pytest.approx(expected((0,), f, f - 1), rel=1e-9)
    assert found["platform"].variance == pytest.approx(expected((1,), p, p - 1), rel=1e-9)
    assert found[INTERACTION].variance == pytest.approx(
        expected((0, 1), f * p, (f - 1) * (p - 1)), rel=1e-9
    )
    pooled = sum(squares[a] for a in ((0, 2), (1, 2), (0, 1, 2))) / ((f * p - 1) * (s - 1))
    assert found[NOISE].variance == pytest.approx(pooled, rel=1e-9)
    seed = (squares[2,] / (s - 1) - pooled) / (f * p)
    assert found[SEED].variance == pytest.approx(max(seed, 0), rel=1e-9)


def test_framework_and_platform_are_not_mixed_up():
    values = study(np.random.default_rng(2), (2, 3, 6), framework=0.5, noise=0.1)
    found, turned = parts(values), parts(values.swapaxes(0, 1))
    assert found["framework"].shown
    assert not found["platform"].shown
    assert turned["platform"] == found["framework"]._replace(name="platform")
    assert turned["framework"] == found["platform"]._replace(name="framework")
    for name in (INTERACTION, SEED, NOISE):
        assert turned[name][1:] == pytest.approx(found[name][1:], rel=1e-9)


def test_of_two_levels_the_interval_is_students():
    rng = np.random.default_rng(3)
    values = study(rng, (2, 3, 6), framework=0.5, seed=1, noise=0.2)
    per_seed = values.mean(axis=1)[..., 0]
    interval = stats.ttest_rel(*per_seed).confidence_interval(0.95)
    found = parts(values)["framework"]
    # Two levels are each half their difference from the mean. 1e-3: points of the averaging.
    limits = np.sort(np.abs(interval)) / 2
    assert found.low is not None
    assert found.high is not None
    assert np.sqrt([found.low, found.high]) == pytest.approx(limits, rel=1e-3)


@pytest.mark.parametrize("num_seeds", [2, 3, 6])
def test_a_part_is_shown_where_the_f_test_shows_it(num_seeds):
    noise = study(np.random.default_rng(4), (2, 3, num_seeds), noise=1)
    first, second = noise.mean(axis=1)[..., 0]
    seen = set()
    for effect in np.geomspace(0.1, 100, 60):
        moved = noise + effect * np.array([0.5, -0.5]).reshape(2, 1, 1, 1)
        p_value = stats.ttest_rel(first + effect, second).pvalue
        # Not within 5 % of the limit, which the points of the averaging move.
        if abs(p_value / 0.025 - 1) > 0.05:
            shown = parts(moved)["framework"].shown
            assert shown == (p_value < 0.025)
            seen.add(shown)
    assert seen == {False, True}


def test_seeds_are_what_effects_are_judged_by():
    # Frameworks that treat every seed otherwise, alike on all platforms: that is no evidence of
    # an effect, however small the noise of single runs is.
    rng = np.random.default_rng(5)
    values = study(rng, (2, 6, 3), noise=0.01) + rng.normal(0, 1, (2, 1, 3, 1))
    assert not parts(values)["framework"].shown


def test_a_vectors_parts_are_the_sums_of_its_numbers():
    values = study(np.random.default_rng(6), (2, 2, 4), framework=2, platform=2, noise=0.1)
    both = np.concatenate([values, values**2], axis=3)
    apart = [parts(both[..., i : i + 1]) for i in range(2)]
    found = parts(both)
    for name in FACTORS:  # which are above zero in both
        total = sum(part[name].variance for part in apart)
        assert found[name].variance == pytest.approx(total, rel=1e-9)


def test_one_level_has_no_part():
    assert list(parts(study(np.random.default_rng(0), (1, 3, 4), noise=1))) == [
        "platform",
        SEED,
        NOISE,
    ]


def test_where_nothing_varies_nothing_is_said_of_certainty():
    found = parts(np.full((2, 3, 4, 1), 97.3))
    assert {tuple(part)[1:] for part in found.values()} == {(0.0, None, None)}
    assert not any(part.exact or part.shown for part in found.values())
    gap = np.full((2, 3, 4, 1), 97.3) + np.array([0.0, 0.5]).reshape(2, 1, 1, 1)
    assert parts(gap)["framework"] == ("framework", 0.0625, None, None)


def test_repeats_are_part_of_the_noise():
    # Of two repeats the mean has half the variance; the other half is added again.
    values = study(np.random.default_rng(7), (2, 3, 5), noise=0.5)
    alone = parts(values)[NOISE].variance
    repeats = Repeats(variance=0.3, free=30, hidden=0.5)
    assert parts(values, repeats=repeats)[NOISE].variance == pytest.approx(alone + 0.15)
    assert parts(values[:1, :1], repeats=repeats)[NOISE].variance == pytest.approx(0.15)


def test_one_part_exceeds_another_only_where_intervals_allow():
    large, small = Component("a", 1.0, 0.8, 1.3), Component("b", 0.1, 0.0, 0.3)
    assert exceeds(large, small)
    assert not exceeds(small, large)
    assert not exceeds(large, Component("b", 0.1, 0.0, 2.0))
    assert not exceeds(large, large)
    assert exceeds(large, Component("b", 0.0, 0.0, 0.0))
    assert not exceeds(Component("a", 1.0, None, None), small)


def predicted(rng, num_seeds: int) -> np.ndarray:
    """Return predictions of 2 frameworks on 2 platforms, 300 images, 4 classes, as vectors.

    The framework moves every image a little; seeds and noise act along 3 directions that images
    share, and on each image alone.
    """
    fixed = np.random.default_rng(11)
    shape = 300, 4
    base, of_framework = fixed.normal(0, 1.2, shape), fixed.normal(0, 0.2, (2, 1, 1, *shape))
    directions = fixed.normal(0, 1, (3, *shape))
    seeds = np.tensordot(rng.normal(0, 0.4, (num_seeds, 3)), directions, 1)
    noise = np.tensordot(rng.normal(0, 0.2, (2, 2, num_seeds, 3)), directions, 1)
    logits = base + of_framework + seeds + noise
    logits = logits + rng.normal(0, 0.3, (num_seeds, *shape))
    logits = logits + rng.normal(0, 0.3, (2, 2, num_seeds, *shape))
    classes = logits.argmax(axis=-1)
    vectors = classes[..., None] == np.arange(4)
    return vectors.reshape(2, 2, num_seeds, -1) / np.sqrt(300)


@pytest.mark.slow
def test_intervals_of_predictions_hold_the_truth():
    rng = np.random.default_rng(12)
    truth = {name: 0.0 for name in PARTS}
    for _ in range(10):  # the estimates have no bias, so that many seeds come near the truth
        for name, part in parts(predicted(rng, 150)).items():
            truth[name] += part.variance / 10
    held: dict[str, list[bool]] = {}
    for _ in range(400):
        for name, part in parts(predicted(rng, 5)).items():
            assert part.low is not None
            assert part.high is not None
            # Where there is no effect, the truth is what clipping leaves of many seeds: 1e-5.
            held.setdefault(name, []).append(
                part.low <= truth[name] + 1e-5 and part.high >= truth[name]
            )
    # 95 % less three standard errors of 400 studies, and 2 %: classes are no normal numbers.
    assert min(np.mean(values) for values in held.values()) > 0.95 - 3 * 0.011 - 0.02


NONE = {"seed": 0.5, "noise": 0.2}
SOME = {"framework": 0.3, "platform": 0.1, "interaction": 0.05, "seed": 0.5, "noise": 0.2}
EQUAL = dict.fromkeys(("framework", "platform", "interaction", "seed"), 0.1) | {"noise": 0.2}


def coverage(shape, truth, number, *, seed):
    """Return for each part how often its interval holds the truth, and its mean estimate."""
    rng = np.random.default_rng(seed)
    held: dict[str, list[bool]] = {}
    estimates: dict[str, list[float]] = {}
    for _ in range(number):
        for part in split(study(rng, shape, **truth)):
            true = truth.get(part.name, 0.0) ** 2
            assert part.low is not None
            assert part.high is not None
            assert part.low <= part.variance <= part.high
            held.setdefault(part.name, []).append(part.low <= true <= part.high)
            estimates.setdefault(part.name, []).append(part.variance)
    return {name: np.mean(x) for name, x in held.items()}, {
        name: np.mean(x) for name, x in estimates.items()
    }


def test_intervals_hold_the_truth():
    # Of 150 studies a true 95 % leaves 91 % with a chance of 1 in 100 for each of five parts.
    held, means = coverage((2, 3, 5), SOME, 150, seed=8)
    assert min(held.values()) > 0.9
    # Ten standard errors or more from a part that was put elsewhere; 3 from the truth.
    assert means["framework"] == pytest.approx(0.09, abs=0.01)
    assert means["platform"] == pytest.approx(0.01, abs=0.004)
    assert means[NOISE] == pytest.approx(0.04, abs=0.004)
    assert means[SEED] == pytest.approx(0.25, abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("truth", [NONE, SOME, EQUAL], ids=["none", "some", "equal"])
@pytest.mark.parametrize("shape", [(2, 2, 3), (2, 3, 5), (1, 6, 5), (3, 4, 10)])
def test_intervals_hold_the_truth_in_many_studies(shape, truth):
    if shape[0] == 1:
        truth = truth | {"framework": 0.0, "interaction": 0.0}
    held, _ = coverage(shape, truth, 1000, seed=9)
    # 95 % less three standard errors of 1,000 studies, and 1 % for what is approximate.
    assert min(held.values()) > 0.95 - 3 * 0.0069 - 0.01
    # A factor without effect is shown in 2.5 % of the studies: the interval has two sides.
    if truth is NONE:
        assert all(held[name] < 1 for name in FACTORS if name in held)


@pytest.mark.slow
def test_intervals_hold_the_truth_where_bits_are_shared():
    # One framework has the same bits on two platforms: its runs are not independent.
    rng = np.random.default_rng(10)
    held = []
    for _ in range(1000):
        values = study(rng, (2, 3, 5), platform=0.1, seed=0.3, noise=0.2)
        values[0, 1] = values[0, 0] + (levels(3, 0.1)[1] - levels(3, 0.1)[0])
        found = parts(values)
        low, high = found["platform"][2:]
        assert low is not None
        assert high is not None
        held.append([found["framework"].low == 0.0, low <= 0.01 <= high])
    assert np.mean(held, axis=0).min() > 0.95 - 3 * 0.0069 - 0.01
