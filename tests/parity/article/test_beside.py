import pytest
import scipy.stats

from parity.article.published import published
from parity.comparison import Comparison, compare
from parity.tables import as_text


def run(make_result, final: float, **fields):
    return make_result(accuracy=(*range(60, 69), final), epochs=10, **fields)


def beside(results, **options) -> Comparison:
    return compare(results, threshold=70.0, published=published(), **options)


def test_a_group_stands_beside_the_headline_groups_devices(make_result):
    finals = [77.0, 78.0, 77.6]
    results = [run(make_result, x, seed=i) for i, x in enumerate(finals)]
    found = beside(results).published
    assert found is not None
    devices = {d.device: d for d in found.devices if d.optimizer == "adam"}
    # Source: the article's table per device.
    assert (devices["T4"].num_runs, devices["T4"].mean) == (2, 77.635)
    (group,) = found.groups
    at = [d.device for d in found.devices if d.optimizer == "adam"].index("T4")
    assert group.differences[at] == pytest.approx(sum(finals) / 3 - 77.635, abs=1e-10)  # rounded
    # Source: the headline group's mean.
    assert group.difference == pytest.approx(sum(finals) / 3 - 77.890625, abs=1e-10)


def test_equivalence_is_welchs_over_the_headline_group(make_result):
    finals = [77.0, 78.0, 77.6]
    found = beside([run(make_result, x, seed=i) for i, x in enumerate(finals)]).published
    assert found is not None
    headline = [
        file.test_accuracy[-1]
        for file in published()
        if (file.file_kind, file.label) == ("deterministic", "seed_42_tf32_False_amp_False_w0")
    ]
    welch = scipy.stats.ttest_ind(finals, headline, equal_var=False).confidence_interval(0.90)
    between = found.groups[0].equivalence
    assert between is not None
    assert (between.low, between.high) == pytest.approx((welch.low, welch.high))


def test_another_optimizer_stands_beside_its_own_runs(make_result):
    found = beside([run(make_result, 69.0, optimizer="sgd")]).published
    assert found is not None
    (group,) = found.groups
    # Source: the article's mean of SGD over the six devices.
    assert group.difference == pytest.approx(69.0 - 69.095, abs=1e-10)
    assert len(group.differences) == 6
    assert group.equivalence is None


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"dataset": "digits"}, "dataset digits, the article's is cifar10"),
        ({"train_size": 10_000}, "train_size 10000, the article's is all"),
        ({"batch_size": 64}, "batch_size 64, the article's is 128"),
    ],
)
def test_other_conditions_are_not_comparable_and_named(make_result, fields, reason):
    comparison = beside([run(make_result, 77.0, **fields), run(make_result, 78.0, seed=1)])
    assert comparison.published is not None
    first, second = comparison.published.groups
    assert (first.reasons, first.differences, first.difference) == ((reason,), (), None)
    assert second.reasons == ()
    assert f"Group A is not comparable with them: {reason}." in as_text(comparison)


def test_a_shorter_run_is_not_comparable(make_result):
    found = beside([make_result(accuracy=(60.0, 65.0, 70.0))]).published
    assert found is not None
    assert found.groups[0].reasons == ("epochs 3, the article's is 10",)


def test_a_group_that_mixes_optimizers_is_not_comparable(make_result):
    results = [run(make_result, 77.0), run(make_result, 69.0, optimizer="sgd", seed=1)]
    found = beside(results, by=["framework"]).published
    assert found is not None
    assert found.groups[0].reasons == ("the group mixes optimizers",)


def test_it_is_said_that_nothing_closer_than_equivalent_can_be_claimed(make_result):
    results = [run(make_result, 77.0 + s / 9, seed=s, framework=f) for s in (1, 2) for f in "ab"]
    text = " ".join(as_text(beside(results)).split())
    assert "other random streams and other initial weights" in text
    assert "equivalent within a margin, never close or bitwise" in text
    assert "Group A and all: equivalent within ±" in text


def test_it_is_not_there_unless_asked_for(make_result):
    comparison = compare([make_result()], threshold=70.0)
    assert comparison.published is None
    assert "Beside the article" not in as_text(comparison)


def test_tables_fit_with_many_groups(make_result):
    results = [
        run(make_result, 77.0 + s / 9, seed=s, framework=f, optimizer=o, platform=p)
        for s in (1, 2)
        for f in ("jax", "torch")
        for o in ("adam", "sgd", "rmsprop")
        for p in ("cpu", "cpu:avx2")
    ]
    text = as_text(beside(results))
    assert max(map(len, text.splitlines())) <= 100
    assert "6 more groups in --json." in text
