"""Whole layouts are found among runs, copies are no evidence, and what cannot be split says why."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from parity.comparison import compare
from parity.crossed import MAX_PREDICTED, Crossed, whole
from parity.variance import FACTORS, INTERACTION, NOISE, SEED

FRAMEWORKS = ("jax", "torch")
PLATFORMS = ("cpu", "cpu:avx2", "cpu:sse4")
IMAGES = 400


@pytest.fixture(scope="module")
def make(make_result):
    """Return a maker of runs whose bits follow from `bits`, by default from all that is said."""

    def made(framework, platform, seed, *, accuracy, bits=None, classes=None, **options):
        own = f"{framework} {platform} {seed} {options}" if bits is None else bits
        result = make_result(
            f"{framework}-{platform}-{seed}",
            framework=framework,
            platform=platform,
            seed=seed,
            accuracy=(60.0, float(accuracy)),
            digests=[hashlib.sha256(f"{own} {i}".encode()).hexdigest() for i in range(2)],
            **options,
        )
        return replace(result, load_predictions=lambda: classes)

    return made


def study(make, *, frameworks=FRAMEWORKS, platforms=PLATFORMS, seeds=(1, 2, 3, 4), **effects):
    """Return runs with noise of 0.1 pp, seeds 1 pp apart, and effects by name."""
    rng = np.random.default_rng(3)
    of_seed = {seed: 70 + rng.normal(0, 1) for seed in seeds}
    return [
        make(
            f,
            p,
            s,
            accuracy=of_seed[s] + effects.get(f, 0) + effects.get(p, 0) + rng.normal(0, 0.1),
        )
        for f in frameworks
        for p in platforms
        for s in seeds
    ]


def layouts(results) -> tuple[Crossed, ...]:
    return compare(results, threshold=70.0).crossed


def shown(layout: Crossed, outcome: str = "accuracy") -> list[str]:
    (measure,) = [m for m in layout.measures if m.name == outcome]
    return [part.name for part in measure.parts if part.shown]


def test_the_layout_is_found_and_the_effect_where_it_is(make):
    (framework,) = layouts(study(make, torch=1.0))
    assert framework.frameworks == (("jax",), ("torch",))
    assert framework.platforms == (("cpu",), ("cpu:avx2",), ("cpu:sse4",))
    assert (framework.seeds, framework.num_left_out) == ((1, 2, 3, 4), 0)
    assert len(framework.members) == 24
    assert shown(framework) == ["framework", SEED, NOISE]
    (platform,) = layouts(study(make, **{"cpu:sse4": 1.0}))
    assert shown(platform) == ["platform", SEED, NOISE]
    (measure,) = [m for m in platform.measures if m.name == "accuracy"]
    # Of three levels, 1 apart from two: 2/9. The noise moves it by some 0.03.
    assert measure.parts[1].variance == pytest.approx(2 / 9, abs=0.09)


def test_the_order_of_the_runs_changes_nothing(make):
    results = study(make, torch=0.1)
    (forward,), (backward,) = layouts(results), layouts(results[::-1])
    # Sums in another order: rounding.
    for one, other in zip(forward.measures, backward.measures, strict=True):
        for a, b in zip(one.parts, other.parts, strict=True):
            assert a.variance == pytest.approx(b.variance, rel=1e-9, abs=1e-12)


def test_runs_of_one_framework_have_no_part_of_it(make):
    (found,) = layouts(study(make, frameworks=("jax",)))
    assert [part.name for part in found.measures[0].parts] == ["platform", SEED, NOISE]


def test_bitwise_identical_runs_have_parts_of_exactly_zero(make):
    accuracy = {1: 70.1, 2: 71.3, 3: 69.9}
    results = [
        make(f, p, s, accuracy=accuracy[s], bits=f"exact {s}")
        for f in FRAMEWORKS
        for p in PLATFORMS
        for s in accuracy
    ]
    (found,) = layouts(results)
    assert found.bitwise
    for measure in found.measures:
        zeros = [tuple(part) for part in measure.parts if part.name != SEED]
        assert zeros == [(name, 0.0, 0.0, 0.0) for name in (*FACTORS, INTERACTION, NOISE)]
        assert all(part.exact for part in measure.parts if part.name != SEED)
    seed = found.measures[0].part(SEED)
    assert seed is not None
    assert seed.variance == pytest.approx(np.var(list(accuracy.values()), ddof=1), rel=1e-9)
    assert not seed.exact


def test_equal_figures_of_other_bits_are_not_exactly_zero(make):
    results = [make(f, "cpu", s, accuracy=70.0 + s) for f in FRAMEWORKS for s in (1, 2, 3)]
    (found,) = layouts(results)
    assert not found.bitwise
    framework = found.measures[0].part("framework")
    assert framework == ("framework", 0.0, None, None)


def test_platforms_of_the_same_bits_are_one(make):
    results = study(make, platforms=("cpu", "cpu:sse4"))
    twins = [
        make(f, "cpu:avx2", s, accuracy=r.curves.test_accuracy[-1], bits=f"{f} cpu {s} {{}}")
        for (f, s), r in {(r.framework, r.seed): r for r in results if r.platform == "cpu"}.items()
    ]
    (alone,), (found,) = layouts(results), layouts([*results, *twins])
    assert found.platforms == (("cpu", "cpu:avx2"), ("cpu:sse4",))
    assert len(found.members) == 24
    assert found.measures[0].parts == alone.measures[0].parts


def test_one_platform_in_bits_has_a_part_of_exactly_zero(make):
    rng = np.random.default_rng(4)
    results = [
        make(f, p, s, accuracy=accuracy, bits=f"{f} {s}")
        for f in FRAMEWORKS
        for s in (1, 2, 3)
        for accuracy in [70 + rng.normal()]
        for p in PLATFORMS
    ]
    (found,) = layouts(results)
    assert [part.name for part in found.measures[0].parts if part.exact] == [
        "platform",
        INTERACTION,
    ]
    assert not found.bitwise


def test_repeats_that_are_copies_change_nothing_and_others_are_noise(make):
    results = study(make)
    (alone,) = layouts(results)
    (copied,) = layouts([*results, *results[:6]])
    assert copied.measures == alone.measures
    rng = np.random.default_rng(5)
    again = [
        make(
            r.framework,
            r.platform,
            r.seed,
            accuracy=r.curves.test_accuracy[-1] + rng.normal(0, 2),
            bits=f"again {i}",
        )
        for i, r in enumerate(results)
    ]
    means = [
        make(
            r.framework,
            r.platform,
            r.seed,
            accuracy=np.mean([x.curves.test_accuracy[-1] for x in pair]),
        )
        for pair in zip(results, again, strict=True)
        for r in pair[:1]
    ]
    (repeated,), (averaged,) = layouts([*results, *again]), layouts(means)
    repeats, noise = repeated.measures[0].repeats, repeated.measures[0].part(NOISE)
    of_means = averaged.measures[0].part(NOISE)
    assert repeats is not None
    assert noise is not None
    assert of_means is not None
    # The second of two is off by 2 pp, the first by none: a variance of 2; 24 such pairs.
    assert repeats.variance == pytest.approx(2.0, rel=0.6)
    # A run, and not the mean of two, is what the noise is of.
    assert noise.variance == pytest.approx(of_means.variance + repeats.variance / 2, rel=1e-9)
    assert alone.measures[0].repeats is None


def test_of_an_incomplete_layout_the_whole_part_is_taken(make):
    results = study(make, torch=1.0)
    missing = [r for r in results if (r.framework, r.platform, r.seed) != ("jax", "cpu", 2)]
    (found,) = layouts(missing)
    assert (found.seeds, found.num_left_out) == ((1, 3, 4), 5)
    assert len(found.members) == 18
    (without,) = layouts([r for r in results if (r.framework, r.platform) != ("jax", "cpu:sse4")])
    assert without.platforms == (("cpu",), ("cpu:avx2",))
    assert without.num_left_out == 4


def test_a_whole_layout_loses_no_level():
    levels = [["a", "b"], ["x", "y", "z"], [1, 2]]
    places = {(f, p, s) for f in "ab" for p in "xyz" for s in (1, 2)}
    assert whole(levels, places) == levels
    assert whole(levels, places - {("b", "z", 2)}) == [["a", "b"], ["x", "y"], [1, 2]]


@pytest.mark.parametrize(
    ("places", "reason"),
    [
        ([("jax", "tpu"), ("torch", "gpu:0")], "Run every framework on every platform"),
        ([("jax", "cpu"), ("torch", "cpu")], "Add seeds"),
    ],
)
def test_what_cannot_be_split_says_why(make, places, reason):
    num_seeds = 1 if "seeds" in reason else 3
    results = [make(f, p, s, accuracy=70 + s) for f, p in places for s in range(1, num_seeds + 1)]
    (found,) = layouts(results)
    assert found.measures == ()
    assert found.why_not is not None
    assert reason in found.why_not


def test_without_several_frameworks_or_platforms_there_is_no_question(make):
    assert layouts([make("jax", "cpu", s, accuracy=70 + s) for s in (1, 2, 3)]) == ()


def test_configurations_and_streams_are_kept_apart(make):
    both = study(make)
    sgd = [
        make(r.framework, r.platform, r.seed, accuracy=40 + 0.1 * i, optimizer="sgd")
        for i, r in enumerate(both)
    ]
    assert len(layouts([*both, *sgd])) == 2
    # One run drew other numbers: nothing can be set against it.
    other = make("jax", "cpu", 4, accuracy=50, fingerprints={"stream": "other"})
    (found,) = layouts([*both[:3], other, *both[4:]])
    assert found.seeds == (1, 2, 3)
    assert found.num_left_out == 6


def classes(rng, base, share):
    """Return classes of which a share is drawn anew among ten."""
    new = rng.random(IMAGES) < share
    return np.where(new, rng.integers(0, 10, IMAGES), base).astype(np.uint8)


def test_predictions_are_split_into_shares_of_disagreement(make):
    rng = np.random.default_rng(6)
    truth = rng.integers(0, 10, IMAGES)
    of_framework = {f: classes(rng, truth, 0.2) for f in FRAMEWORKS}
    runs = [
        make(f, p, s, accuracy=70, classes=classes(rng, of_framework[f], 0.05))
        for f in FRAMEWORKS
        for p in ("cpu", "cpu:sse4")
        for s in (1, 2, 3, 4)
    ]
    (found,) = layouts(runs)
    assert found.num_images == IMAGES
    # sqrt(0.7 * 0.3 / 400)
    assert found.sampling_error == pytest.approx(2.2913, abs=1e-4)
    assert shown(found, "predictions") == ["framework", NOISE]
    (measure,) = [m for m in found.measures if m.name == "predictions"]
    predictions = [r.load_predictions() for r in runs]

    def apart(same: bool) -> float:
        pairs = [
            (a != b).mean()
            for i, a in enumerate(predictions)
            for j, b in enumerate(predictions)
            if i != j and (runs[i].framework == runs[j].framework) is same
        ]
        return float(np.mean(pairs))

    framework = measure.part("framework")
    assert framework is not None
    # Of two runs of any two frameworks every other pair has two: half of what that adds. 3 points
    # of what little seeds and platforms add by chance.
    assert framework.variance == pytest.approx((apart(False) - apart(True)) / 2, abs=0.003)
    assert measure.total == pytest.approx((apart(False) + apart(True)) / 2, abs=0.003)


def test_predictions_that_are_all_equal_have_no_variance(make):
    runs = [
        make(f, "cpu", s, accuracy=70 + s, classes=np.arange(10))
        for f in FRAMEWORKS
        for s in (1, 2, 3)
    ]
    (found,) = layouts(runs)
    assert found.measures[2].name == "predictions"
    assert found.measures[2].total == 0


def test_two_seeds_leave_no_more_than_all_images_open(make):
    rng = np.random.default_rng(8)
    runs = [
        make(f, "cpu", s, accuracy=70, classes=rng.integers(0, 10, IMAGES))
        for f in FRAMEWORKS
        for s in (1, 2)
    ]
    (found,) = layouts(runs)
    assert max(part.high or 0.0 for part in found.measures[2].parts) == 1.0


def test_predictions_of_other_test_images_are_not_split(make):
    runs = [
        make(f, "cpu", s, accuracy=70 + s, classes=np.arange(10), fingerprints={"data": str(s)})
        for f in FRAMEWORKS
        for s in (1, 2, 3)
    ]
    (found,) = layouts(runs)
    assert [measure.name for measure in found.measures] == ["accuracy", "loss"]


def test_of_very_many_runs_the_predictions_of_the_first_seeds_are_split(make):
    rng = np.random.default_rng(7)
    runs = [
        make(f, "cpu", s, accuracy=rng.normal(70, 1), classes=rng.integers(0, 2, 50))
        for f in FRAMEWORKS
        for s in range(MAX_PREDICTED)
    ]
    (found,) = layouts(runs)
    sizes = {measure.name: measure.num_seeds for measure in found.measures}
    assert sizes["accuracy"] == MAX_PREDICTED
    assert sizes["predictions"] == MAX_PREDICTED // 2
