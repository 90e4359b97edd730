"""The audit finds the article's four silent facts, and finds them only where they are."""

import numpy as np
import pytest

from parity import results as reading
from parity.audit import Audit
from parity.comparison import Comparison, compare


@pytest.fixture(scope="module")
def article(article_results) -> Comparison:
    return compare(reading.read([article_results]).results, threshold=70.0)


def audited(results) -> Audit:
    return compare(results, threshold=70.0).audit


def name(comparison: Comparison, i: int) -> str:
    return comparison.results[i].name.rpartition("_2025")[0]


def test_fact_1_some_tpu_runs_are_copies(article):
    audit = article.audit
    assert (audit.num_runs, audit.num_distinct) == (65, 62)
    assert len(audit.copies) == 3
    assert {article.results[i].platform for c in audit.copies for i in c.members} == {"TPU"}
    (suspect,) = [copies for copies in audit.copies if copies.unlike]
    assert [name(article, i) for i in suspect.members] == [
        "deterministic_TPU_TPU_bf16_True_amp_False_w4_detFalse",
        "optimizer_tpu_v6e1_adam_seed_42",
        "train_TPU_v6e1_bf16_True_amp_False",
    ]
    # The optimizer file names no workers, and in truth had 4 like the others.
    assert suspect.unlike == ("workers",)


def test_fact_2_another_stream_outweighs_the_hardware(article):
    found = {(c.field, c.optimizer): c for c in article.audit.contrasts}
    workers, devices = found["workers", "adam"], found["platform", "adam"]
    assert workers.other_stream
    assert not devices.other_stream
    assert workers.typical > 2 * devices.typical
    # With copies left out, 7 pairs; source: the article's files, 0.92 to 2.95 pp.
    assert (workers.num_pairs, workers.largest) == (7, 2.95)


def test_fact_3_deterministic_and_bf16_changed_together_on_the_tpu(article):
    (found,) = article.audit.confounded
    assert (found.field, found.value, found.platform) == ("deterministic", None, "TPU")
    assert found.others == ("arithmetic",)
    assert [name(article, i) for i in found.pair] == [
        "deterministic_TPU_TPU_bf16_False_amp_False_w0_detTrue",
        "deterministic_TPU_TPU_bf16_True_amp_False_w0_detFalse",
    ]


def test_fact_4_the_headline_group_mixes_settings(article):
    headline = article.audit.mixtures[0]
    assert article.groups[headline.group].values["label"] == "seed_42_tf32_False_amp_False_w0"
    assert not headline.balanced
    mixed = dict(headline.mixed)
    assert mixed["benchmark"] == ((False, 14), (True, 2))
    assert mixed["deterministic"] == ((False, 10), (True, 6))
    assert mixed["arithmetic"] == (("float32", 15), ("bf16", 1))


def test_the_articles_devices_are_not_shown_to_differ(article):
    first = article.audit.contests[0]
    assert (first.field, first.values) == ("platform", article.groups[0].values)
    contest = first.contest
    assert (contest.num_runs, contest.num_blocks, contest.num_free) == (15, 3, 7)
    assert not contest.shown
    # Golden: statsmodels 0.15.0, OLS of accuracy on device and block: the scale, and
    # t_test(TPU - T4).conf_int(0.05 / 15), over the headline group.
    assert contest.noise_std == pytest.approx(0.18953808291198435)
    assert contest.largest[:2] == ("TPU", "T4")
    assert contest.largest[2:] == pytest.approx((0.87294118, -0.16738491, 1.91326726))
    assert contest.detectable is not None
    assert contest.detectable > 0.87  # what the article's Max_Diff is


def study(make_result, *, effect: float = 0.0, num_seeds: int = 8):
    """Return runs on two platforms over seeds, with noise of 0.2 pp and seeds 1 pp apart."""
    random = np.random.default_rng(7)
    return [
        make_result(
            f"{platform}-{seed}",
            seed=seed,
            platform=platform,
            accuracy=(60.0, 65.0, base + effect * (platform == "b") + random.normal(0, 0.2)),
        )
        for seed, base in enumerate(random.normal(77, 1, num_seeds))
        for platform in "ab"
    ]


def test_a_planted_effect_is_shown_and_none_is_not(make_result):
    (shown,) = audited(study(make_result, effect=1.0)).contests
    assert shown.contest.shown
    assert shown.contest.largest[:2] == ("b", "a")
    assert shown.contest.largest.low > 0.5
    (not_shown,) = audited(study(make_result)).contests
    assert not not_shown.contest.shown
    assert not_shown.contest.largest.low < 0 < not_shown.contest.largest.high


def test_a_sound_study_raises_no_suspicion(make_result):
    found = audited(study(make_result))
    assert (found.copies, found.confounded, found.mixtures) == ((), (), ())
    assert found.num_runs == found.num_distinct == 16


def test_planted_copies_are_counted_once(make_result):
    results = study(make_result, num_seeds=3)
    found = audited([*results, results[0], results[0]])
    assert (found.num_runs, found.num_distinct) == (8, 6)
    (copies,) = found.copies
    assert (copies.members, copies.unlike) == ((0, 6, 7), ())
    # A copy is no repeat: it would make the noise look smaller.
    assert None not in {contrast.field for contrast in found.contrasts}
    (contested,) = found.contests
    assert contested.contest == audited(results).contests[0].contest
    assert contested.num_copies == 2


def test_a_setting_without_any_effect_is_told_from_a_copy(make_result):
    results = [make_result(batch_size=128), make_result(batch_size=64)]
    (copies,) = audited(results).copies
    assert copies.unlike == ("batch_size",)
    assert audited(results).num_distinct == 2


def test_a_planted_confounding_is_found(make_result):
    results = [
        make_result(platform="a", arithmetic="float32", accuracy=(60.0, 65.0, 70.0)),
        make_result(platform="b", arithmetic="float64", accuracy=(60.0, 65.0, 71.0)),
    ]
    assert {c.field for c in audited(results).confounded} == {"platform", "arithmetic"}
    assert audited(results).contests == ()


def test_a_planted_mixture_is_found(make_result):
    results = [make_result(platform=p, lr=lr) for p, lr in (("a", 0.1), ("a", 0.2), ("b", 0.1))]
    found = compare(results, by=["framework"], threshold=70.0).audit
    assert [entry.group for entry in found.mixtures] == [0]
    assert not found.mixtures[0].balanced
    assert audited(results).mixtures == ()


def test_platforms_and_frameworks_are_each_held_against_the_noise(make_result):
    random = np.random.default_rng(7)
    results = [
        make_result(
            seed=s,
            platform=p,
            framework=f,
            accuracy=(60.0, 65.0, 70 + 2 * (f == "jax") + random.normal(0, 0.2)),
        )
        for s in range(5)
        for p in "ab"
        for f in ("jax", "torch")
    ]
    platform, framework = audited(results).contests
    assert (platform.field, framework.field) == ("platform", "framework")
    assert not platform.contest.shown
    assert framework.contest.shown
    assert platform.contest.num_blocks == framework.contest.num_blocks == 10


def test_experiments_with_other_optimizers_are_apart(make_result):
    results = [
        make_result(seed=s, platform=p, optimizer=o, accuracy=(60.0, 65.0, 70 + s / 7 + len(o)))
        for s in (1, 2)
        for p in "ab"
        for o in ("adam", "sgd")
    ]
    found = audited(results).contests
    assert [contested.values["optimizer"] for contested in found] == ["adam", "sgd"]


def test_one_run_or_none_is_audited_without_complaint(make_result):
    assert audited([make_result()]).num_runs == 1
    assert audited([make_result(accuracy=(60.0,), status="running")]).num_runs == 0
