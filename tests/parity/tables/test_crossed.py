"""Which of framework and hardware matters is told in sentences that the runs bear out."""

import re

import numpy as np
import pytest

from parity.comparison import compare
from parity.tables import as_text
from parity.tables.crossed import _answer
from parity.variance import Component

HEADING = "Framework or hardware: what the variance is made of"


def words(results) -> str:
    text = as_text(compare(results, threshold=70.0))
    assert max(map(len, text.splitlines())) <= 100
    found = re.search(rf"^{HEADING}$(.*?)^Groups by", text, re.M | re.S)
    return " ".join(found.group(1).split()) if found else ""


@pytest.fixture(scope="module")
def study(make_result):
    def made(*, seeds=(1, 2, 3, 4, 5), noise=0.1, platforms=("cpu", "cpu:sse4"), **effects):
        rng = np.random.default_rng(3)
        return [
            make_result(
                framework=f,
                platform=p,
                seed=s,
                accuracy=(
                    60.0,
                    base + effects.get(f, 0) + effects.get(p, 0) + rng.normal(0, noise),
                ),
                digests=[f"{f}{p}{s}{i}" for i in range(2)],
            )
            for s, base in zip(seeds, 70 + rng.normal(0, 1, len(seeds)), strict=True)
            for f in ("jax", "torch")
            for p in platforms
        ]

    return made


def test_a_framework_that_matters_is_named(study):
    text = words(study(torch=1.0))
    assert "2 frameworks (jax, torch) x 2 platforms (cpu, cpu:sse4) x 5 seeds: 20 runs." in text
    assert "Final accuracy: the framework matters, more than the platform [framework 0." in text
    assert re.search(r"platform at most 0\.\d\d pp\]\. Most is the seed", text)


def test_a_platform_that_matters_is_named(study):
    text = words(study(**{"cpu:sse4": 1.0}))
    assert (
        "Final accuracy: the platform matters, more than the framework [framework at most" in text
    )


def test_of_two_that_matter_alike_neither_is_said_to_matter_more(study):
    text = words(study(torch=1.0, **{"cpu:sse4": 1.0}))
    assert "framework and platform both matter; which of them more, these runs cannot tell" in text


def test_where_nothing_is_shown_the_limits_are_told(study):
    text = words(study(seeds=tuple(range(12))))
    assert "neither the framework nor the platform is shown to matter [framework at most" in text
    assert "cannot rule out" not in text


def test_too_few_seeds_are_told_to_rule_out_little(study):
    assert "so few seeds cannot rule out that it does as much as noise" in words(
        study(seeds=(1, 2))
    )


def test_bitwise_identical_runs_leave_the_seed_alone(make_result):
    runs = [
        make_result(
            framework=f, platform=p, seed=s, accuracy=(60.0, 70.0 + s), digests=["0", f"{s}"]
        )
        for f in ("jax", "torch")
        for p in ("cpu", "cpu:sse4")
        for s in (1, 2, 3)
    ]
    text = words(runs)
    assert (
        "Final accuracy: within each seed all runs are bitwise identical, whatever the framework "
        "and platform, so that these parts are exactly zero: framework, platform, interaction, "
        "noise. Only the seed matters: 1.00 pp (0.52 to 6.28)." in text
    )
    assert text.count("0 exactly 0 %") == 8
    assert "matter [" not in text


def test_one_seed_is_told_to_be_too_few(study):
    text = words(study(seeds=(1,)))
    assert text.startswith("One configuration cannot be split. All have one seed")
    assert "Add seeds" in text


def test_of_one_seed_in_equal_bits_the_verdict_says_all(make_result):
    text = as_text(compare([make_result(framework=f) for f in ("jax", "torch")], threshold=70.0))
    assert "Bitwise identical: 2 runs" in text
    assert HEADING not in text


def test_without_a_question_there_is_no_answer(make_result):
    runs = [make_result(seed=s, accuracy=(60.0, 70.0 + s)) for s in (1, 2, 3)]
    assert HEADING not in as_text(compare(runs, threshold=70.0))


def test_platforms_of_the_same_bits_are_told_to_be_one(study, make_result):
    runs = study()
    runs += [
        make_result(
            framework=r.framework,
            platform="cpu:avx2",
            seed=r.seed,
            accuracy=r.curves.test_accuracy.tolist(),
            digests=r.digests,
        )
        for r in runs
        if r.platform == "cpu"
    ]
    text = words(runs)
    assert "cpu and cpu:avx2 are bitwise identical throughout and count as one." in text
    assert "3 platforms (cpu, cpu:avx2, cpu:sse4)" in text


def part(name: str, variance: float, low: float | None, high: float | None) -> Component:
    return Component(name, variance, low, high)


NOISE = part("noise", 1.0, 0.7, 1.5)
HIDDEN, SHOWN = (0.0, 0.0, 0.3), (2.0, 1.6, 2.5)


@pytest.mark.parametrize(
    ("framework", "platform", "interaction", "said"),
    [
        (SHOWN, HIDDEN, HIDDEN, "the framework matters, more than the platform"),
        (HIDDEN, SHOWN, HIDDEN, "the platform matters, more than the framework"),
        (HIDDEN, HIDDEN, SHOWN, "framework and platform matter, but only together"),
        (HIDDEN, HIDDEN, HIDDEN, "neither the framework nor the platform is shown to matter"),
        (
            (0.0, 0.0, 4.0),
            SHOWN,
            HIDDEN,
            "the platform matters; whether more than the framework, these runs cannot tell",
        ),
        ((0.0, 0.0, 0.0), SHOWN, (0.0, 0.0, 0.0), "the platform matters, more than the framework"),
    ],
)
def test_the_answer_is_what_the_intervals_allow(framework, platform, interaction, said):
    factors = [part("framework", *framework), part("platform", *platform)]
    assert _answer(factors, part("interaction", *interaction), NOISE) == said


def test_one_factor_alone_is_answered_alone():
    assert _answer([part("platform", *SHOWN)], None, NOISE) == "the platform matters"
    assert _answer([part("platform", *HIDDEN)], None, NOISE) == (
        "the platform is not shown to matter"
    )
