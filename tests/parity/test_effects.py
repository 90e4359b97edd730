import pytest

from parity.comparison import compare
from parity.effects import effects


def final(accuracy: float) -> tuple[float, float]:
    return (60.0, accuracy)


def test_an_effect_is_taken_over_matched_runs(make_result):
    results = [
        make_result(seed=1, framework="torch", accuracy=final(70.0)),
        make_result(seed=1, framework="jax", accuracy=final(70.5)),
        make_result(seed=2, framework="torch", accuracy=final(80.0)),
        make_result(seed=2, framework="jax", accuracy=final(79.9)),
        make_result(seed=3, framework="torch", accuracy=final(10.0)),  # without a match
    ]
    (effect,) = effects(results)
    assert (effect.field, effect.first, effect.second) == ("framework", "torch", "jax")
    assert effect.num_matches == 2
    assert (effect.min_difference, effect.max_difference) == (-0.5, 0.1)
    assert effect.mean_difference == -0.2
    # Plain means take in the run without a match. They are rounded to ten decimals.
    assert effect.pooled_difference == pytest.approx(160 / 3 - 75.2, abs=1e-10)


def test_a_setting_that_only_changes_with_another_has_no_effect(make_result):
    results = [make_result(framework="torch", lr=0.1), make_result(framework="jax", lr=0.2)]
    assert effects(results) == []


def test_runs_on_other_data_are_no_match(make_result):
    other = make_result(framework="jax", fingerprints={"data": "0" * 64})
    assert effects([make_result(), other]) == []


def test_no_order_of_runs_decides_which_value_is_first(make_result):
    runs = [make_result(framework="torch"), make_result(framework="jax")]
    assert effects(runs) == effects(runs[::-1])
    assert effects(runs)[0].first == "jax"


def test_the_sign_is_that_of_the_groups(make_result):
    found = compare(
        [
            make_result(seed=seed, framework=f, accuracy=final(70.0 + seed / 7 + (f == "jax")))
            for seed in (1, 2)
            for f in ("jax", "torch")
        ],
        threshold=70.0,
    )
    assert [group.values["framework"] for group in found.groups] == ["jax", "torch"]
    assert found.group_pairs[0].difference == found.effects[0].mean_difference == 1.0
