from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from parity import comparison as comparing
from parity import results as reading
from parity.comparison import compare
from parity.comparison_json import as_json
from parity.errors import UserError


def test_runs_are_grouped_by_what_was_varied_but_not_by_the_seed(make_result):
    found = compare(
        [make_result(seed=s, framework=f, lr=r) for s in (1, 2) for f, r in (("jax", 0.1),) * 2]
        + [make_result(seed=1, lr=0.2)],
        threshold=70.0,
    )
    assert found.by == {"run": ("framework", "platform", "arithmetic", "optimizer", "lr")}
    assert [group.pool.spread.num_runs for group in found.groups] == [4, 1]
    assert [group.sets for group in found.groups] == [(0, 1), (0,)]


def test_groups_are_by_any_field_asked_for(make_result):
    results = [make_result(seed=s, environment={"host": h}) for s, h in ((1, "a"), (2, "b"))]
    found = compare(results, by=("seed", "host"), threshold=70.0)
    assert [g.values for g in found.groups] == [
        {"seed": 1, "host": "a"},
        {"seed": 2, "host": "b"},
    ]
    with pytest.raises(UserError, match="Choose from: kind, status, framework"):
        compare(results, by=("color",), threshold=70.0)


def test_the_articles_files_are_grouped_as_the_article_does(article_results):
    found = compare(reading.read([article_results]).results, threshold=70.0)
    headline = next(
        group.pool
        for group in found.groups
        if group.values["file_kind"] == "deterministic"
        and group.values["label"] == "seed_42_tf32_False_amp_False_w0"
    )
    # Source: the article's figures for its headline group, every printed digit.
    assert headline.spread.num_runs == 16
    assert headline.spread.mean_accuracy == 77.890625
    assert headline.spread.std_accuracy == 0.2688277503811686
    assert headline.spread.max_difference == 0.87
    assert headline.spread.correlations.mean == 0.9850692095403718
    assert headline.category == "Statistical (acceptable)"
    assert not any(sign.present for sign in headline.signs)
    optimizers = {
        group.values["optimizer"]: round(group.pool.spread.mean_accuracy, 2)
        for group in found.groups
        if group.values["file_kind"] == "optimizer"
    }
    # Source: the article's means over its six devices; it gives SGD's 69.095 as 69.09.
    assert optimizers == {"adam": 76.6, "rmsprop": 72.68, "sgd": pytest.approx(69.09, abs=0.011)}


def test_the_articles_files_are_found_to_hold_copies_and_an_effect_of_workers(article_results):
    results = reading.read([article_results]).results
    found = compare(results, threshold=70.0)
    copies = [{results[i].name.split("_2025")[0] for i in twin.members} for twin in found.twins]
    assert {
        "optimizer_tpu_v6e1_adam_seed_42",
        "train_TPU_v6e1_bf16_True_amp_False",
        "deterministic_TPU_TPU_bf16_True_amp_False_w4_detFalse",
    } in copies
    (workers,) = [effect for effect in found.effects if effect.field == "workers"]
    assert (workers.first, workers.second, workers.num_matches) == (0, 4, 7)
    assert workers.min_difference > 0.9


def test_unfinished_runs_enter_pairs_but_no_group_and_no_verdict(make_result):
    results = [
        make_result("a"),
        make_result("b", accuracy=(60.0, 65.0), status="running"),
        make_result("c", accuracy=(60.0,), status="failed", failure={"message": "loss is NaN"}),
        make_result("d", accuracy=(), status="running"),
    ]
    found = compare(results, threshold=70.0)
    assert [group.pool.members for group in found.groups] == [(0,)]
    assert found.pooled is not None
    assert found.pooled.members == (0,)
    assert [pair.members for pair in found.pairs] == [(0, 1), (0, 2), (1, 2)]
    assert [pair.spread.num_epochs for pair in found.pairs] == [2, 1, 1]
    assert compare(results[1:], threshold=70.0).pooled is None


def test_pairs_are_comparable_ones_unless_there_are_none(make_result):
    other = make_result(fingerprints={"data": "0" * 64})
    found = compare([make_result("a"), make_result("b"), other], threshold=70.0)
    assert [(pair.members, pair.comparable) for pair in found.pairs] == [((0, 1), True)]
    found = compare([make_result(), other], threshold=70.0)
    assert [(pair.members, pair.comparable) for pair in found.pairs] == [((0, 1), False)]


def test_of_too_many_pairs_the_extreme_ones_are_compared(make_result, monkeypatch):
    monkeypatch.setattr(comparing, "MAX_PAIRS", 3)
    finals = [72.0, 71.5, 73.0, 72.5]
    results = [make_result(accuracy=(60.0, 65.0, 70.0, final)) for final in finals]
    found = compare(results, threshold=70.0)
    assert found.num_pairs == 6
    assert (1, 2) in [pair.members for pair in found.pairs]
    assert len(found.pairs) < 6


def test_groups_over_equal_seeds_are_paired_by_seed(make_result):
    # The seeds are 5 pp apart, the frameworks 0.5, 0.6 and 0.7.
    results = [
        make_result(seed=seed, framework=f, accuracy=(60.0, 65.0, 60 + 5 * seed + apart))
        for seed in (1, 2, 3)
        for f, apart in (("jax", 0.4 + seed / 10), ("torch", 0.0))
    ]
    (pair,) = compare(results, threshold=70.0).group_pairs
    assert pair.difference == 0.6
    assert pair.equivalence is not None
    assert pair.equivalence.paired
    paired = scipy.stats.ttest_rel([0.5, 0.6, 0.7], [0.0] * 3).confidence_interval(0.90)
    assert tuple(pair.equivalence)[:2] == pytest.approx((paired.low, paired.high))
    assert compare(results[:-1], threshold=70.0).group_pairs == ()


def test_runs_of_one_seed_are_not_paired(make_result):
    results = [
        make_result(framework=f, accuracy=(60.0, 65.0, 70.0 + i / 10))
        for i, f in enumerate(["jax", "torch"] * 2)
    ]
    (pair,) = compare(results, threshold=70.0).group_pairs
    assert pair.equivalence is not None
    assert not pair.equivalence.paired


def test_copies_count_once_in_a_group(make_result):
    finals = [70.0, 70.0, 70.0, 73.0]
    found = compare([make_result(accuracy=(60.0, 65.0, x)) for x in finals], threshold=70.0)
    (group,) = found.groups
    assert (group.members, group.num_distinct) == ((0, 1, 2, 3), 2)
    assert group.pool.members == (0, 3)
    assert group.pool.spread.mean_accuracy == 71.5


def test_a_group_of_copies_alone_keeps_its_category(make_result):
    (group,) = compare([make_result(), make_result()], threshold=70.0).groups
    assert (group.num_distinct, group.pool.members) == (1, (0, 1))
    assert group.pool.category == "Bit-exact"


def test_predictions_that_cannot_be_read_are_left_out_with_a_warning(make_result):
    def fail():
        raise UserError("predictions.npy is not the file that the run wrote.")

    broken = replace(make_result("broken"), load_predictions=fail)
    found = compare([broken, make_result("whole")], threshold=70.0)
    (warning,) = found.warnings
    assert "broken" in warning
    assert found.pooled is not None
    assert found.pooled.agreement is not None
    assert found.pooled.agreement.predictions_percent is None


def test_predictions_are_compared_on_one_test_set_only(make_result):
    def predicting(value: int, **fields):
        images = np.array([value, 1, 2, 3], np.uint8)
        return replace(make_result(**fields), load_predictions=lambda: images)

    pair = compare([predicting(0), predicting(7)], threshold=70.0).pairs[0]
    assert pair.agreement is not None
    assert pair.agreement.predictions_percent == 25.0
    other = predicting(7, fingerprints={"data": "0" * 64})
    assert compare([predicting(0), other], threshold=70.0).pairs[0].agreement is None


seeds_and_accuracies = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from([68.0, 70.0, 71.25])), min_size=2, max_size=6
)


@given(seeds_and_accuracies, st.randoms(use_true_random=False))
def test_the_order_of_the_runs_changes_no_figure(make_result, runs, random):
    results = [make_result(seed=s, accuracy=(60.0, 65.0, accuracy)) for s, accuracy in runs]
    one = compare(results, threshold=70.0)
    other = compare(random.sample(results, len(results)), threshold=70.0)
    for name in ("mean_accuracy", "std_accuracy", "max_difference", "first_loss_gap"):
        assert getattr(one.pooled.spread, name) == getattr(other.pooled.spread, name)
    assert one.pooled.spread.correlations.mean == other.pooled.spread.correlations.mean
    assert one.pooled.category == other.pooled.category
    assert Counter(p.agreement.first_step for p in one.set_pools) == Counter(
        p.agreement.first_step for p in other.set_pools
    )


def test_a_thousand_runs_take_no_loop_over_pairs(make_result):
    accuracies = np.random.default_rng(0).normal([60, 65, 68, 70, 72], 0.3, (1000, 5))
    results = [make_result(f"run-{i}", accuracy=a.tolist()) for i, a in enumerate(accuracies)]
    found = compare(results, threshold=70.0)
    assert found.num_pairs == 499_500
    assert len(found.pairs) <= 4
    assert len(as_json(found)) < 10_000_000
