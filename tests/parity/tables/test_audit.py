import re

import numpy as np
import pytest

from parity import results as reading
from parity.comparison import compare
from parity.tables import as_text
from parity.tables.audit import audit


def words(results, **options) -> str:
    text = as_text(compare(results, threshold=70.0, **options))
    found = re.search(
        r"^What these runs can show$(.*?)^(Groups by|Framework or)", text, re.M | re.S
    )
    return " ".join(found.group(1).split()) if found else ""


def study(make_result, *, effect: float = 0.0, num_seeds: int = 8, spread: float = 0.2):
    random = np.random.default_rng(7)
    return [
        make_result(
            seed=seed,
            platform=platform,
            accuracy=(60.0, 65.0, base + effect * (platform == "b") + random.normal(0, spread)),
        )
        for seed, base in enumerate(random.normal(77, 1, num_seeds))
        for platform in "ab"
    ]


def test_an_effect_is_told_in_words(make_result):
    text = words(study(make_result, effect=1.0))
    assert "Do devices differ? Yes, by more than chance explains" in text
    assert re.search(r"b is [01]\.\d\d pp above a; by chance alone a run ends about 0\.", text)
    assert "as far apart in fewer than 1 of 100 cases" in text
    assert re.search(r"A firm answer about 0\.5 pp takes \d+ runs on each of the devices\.", text)


def test_no_effect_is_told_in_words(make_result):
    text = words(study(make_result))
    assert "Do devices differ? Not shown" in text
    assert "Yes" not in text
    assert re.search(r"as far apart in \d+ of 100 cases", text)
    assert re.search(r"show a difference of 0\.\d\d pp in 8 of 10 studies", text)


def test_too_few_runs_are_told_to_be_unable_to_tell(make_result):
    text = words(study(make_result, effect=5.0, num_seeds=3))
    assert "These runs cannot tell" in text
    assert "even the clearest result would come by chance in 25 of 100 cases" in text
    assert "8 of 10 studies" not in text


def test_without_repeats_no_noise_is_claimed(make_result):
    text = words(study(make_result, effect=1.0, num_seeds=1))
    assert "nothing was repeated, so what chance does is unknown" in text
    assert text.endswith("it takes repeats, best with other seeds.")


def test_repeats_that_are_copies_are_told_apart_from_none(make_result):
    runs = [
        make_result(platform=p, accuracy=(60.0, 65.0, 70.0 + (p == "b")))
        for _ in range(2)
        for p in "ab"
    ]
    text = words(runs)
    assert "4 runs are 2 distinct ones." in text
    assert "b is 1.00 pp above a, but repeats agree in every bit, so that only other seeds" in text


def test_copies_across_frameworks_are_good_news(make_result):
    runs = [
        make_result(seed=s, framework=f, digests=[f"{s}" * 64] * 3, accuracy=(60.0, 65.0, 70.0 + s))
        for s in (1, 2, 3)
        for f in ("jax", "torch")
    ]
    text = words(runs)
    assert (
        "Runs 1-2; 3-4; 5-6 agree in every bit though their records differ in framework: that "
        "changed nothing." in text
    )
    assert "Do frameworks differ? Not at all" in text


def test_equal_accuracies_are_no_difference(make_result):
    runs = [
        make_result(seed=s, platform=p, accuracy=(60.0 + (p == "a"), 65.0, 70.0 + s))
        for s in (1, 2, 3)
        for p in "ab"
    ]
    assert "Do devices differ? Not at all" in words(runs)


def test_exact_repeats_are_told(make_result):
    runs = [
        make_result(seed=s, platform=p, accuracy=(60.0, 65.0, 70.0 + s + (p == "a") / 2))
        for s in range(6)
        for p in "ab"
    ]
    text = words(runs)
    assert "repeats agree exactly" in text
    assert "Yes, by more than chance" in text


def test_seeds_are_set_beside_devices(make_result):
    text = words(study(make_result))
    assert "Runs of different seeds draw other random numbers" in text
    assert "another device" in text


def test_the_four_facts_of_the_articles_files_stand_in_the_text(article_results):
    text = words(reading.read([article_results]).results)
    for sentence in (
        "65 runs are 62 distinct ones.",
        "Runs 26, 47, 64 agree in every bit though their records differ in workers: that changed "
        "nothing, or a record is wrong.",
        "Runs with workers 0 and 4, by that setting, for the files do not record it, draw other "
        "random numbers: they cannot be compared as evidence of hardware. Such a pair, both with "
        "adam, equal in all else, is typically 1.80 pp apart (beside it: a mere repeat 0.53 pp, "
        "another device 0.62 pp).",
        "Confounded: deterministic changed on TPU only together with arithmetic",
        "benchmark False (14), True (2); deterministic False (10), True (6)",
        "Do devices differ? Not shown (group A: 15 runs that compare, on 6 devices): the farthest "
        "apart, TPU and T4, differ by 0.87 pp; by chance alone a run ends about 0.19 pp off. The "
        "true difference lies, with 95 % confidence, between -0.17 and +1.91 pp.",
    ):
        assert sentence in text


def test_two_settings_that_changed_together_take_one_sentence(make_result):
    runs = [
        make_result(platform="cpu", arithmetic="float32", accuracy=(60.0, 65.0, 70.0)),
        make_result(platform="gpu:0", arithmetic="float64", accuracy=(60.0, 65.0, 71.0)),
    ]
    text = words(runs)
    assert text.count("Confounded") == 1
    assert "platform changed only together with arithmetic (most alike: runs 1-2)" in text


def test_bitwise_runs_need_no_audit(make_result):
    assert words([make_result(), make_result(framework="jax")]) == ""


@pytest.mark.parametrize("num_seeds", [1, 2, 30])
def test_the_audit_stays_short_and_narrow(make_result, num_seeds):
    runs = [
        make_result(
            seed=s,
            platform=f"platform-of-a-long-name-{p}",
            framework=f,
            optimizer=o,
            arithmetic=a,
            accuracy=(60.0, 65.0, 70 + s / 7 + len(o) + len(f) / 9 + p / 11),
        )
        for s in range(num_seeds)
        for p in range(4)
        for f in ("jax", "torch")
        for o in ("adam", "sgd", "rmsprop")
        for a in ("float32", "float64")
        if (p, a) != (3, "float32")
    ]
    comparison = compare(runs, threshold=70.0)
    assert len(list(audit(comparison))) < 25
    assert max(map(len, as_text(comparison).splitlines())) <= 100
