from pathlib import Path

import pytest

from parity import provenance
from parity.article import files
from parity.results import from_article

OTHER = "f" * 64
CURVES = {name: [1.0, 2.0] for name in files.CURVES}


def article(**fields):
    return from_article(files.parse(CURVES | {"seed": 42} | fields, Path("train_x.json")))


def roles(results) -> dict[str, str]:
    return {d.field: d.role for d in provenance.differences(results)}


def test_runs_of_one_data_stream_and_start_form_one_set(make_result):
    results = [make_result(), make_result(framework="jax"), make_result(lr=0.1)]
    assert provenance.comparable_sets(results) == [(0, 1, 2)]
    assert provenance.obstacles(results) == []


@pytest.mark.parametrize("name", provenance.FINGERPRINTS)
def test_another_fingerprint_is_an_obstacle_that_names_the_runs(make_result, name):
    results = [make_result(), make_result(fingerprints={name: OTHER}), make_result()]
    assert provenance.comparable_sets(results) == [(0, 2), (1,)]
    (obstacle,) = provenance.obstacles(results)
    assert (obstacle.field, obstacle.by_seed, obstacle.causes) == (name, False, ())
    assert [value.members for value in obstacle.values] == [(0, 2), (1,)]
    assert roles(results)[name] == "meaning"


def test_a_setting_that_can_explain_an_obstacle_is_named(make_result):
    results = [make_result(), make_result(batch_size=64, fingerprints={"stream": OTHER})]
    (obstacle,) = provenance.obstacles(results)
    assert [cause.field for cause in obstacle.causes] == ["batch_size"]


def test_seeds_alone_are_no_loud_obstacle(make_result):
    results = [make_result(seed=seed) for seed in (1, 1, 2)]
    found = provenance.obstacles(results)
    assert [(o.field, o.by_seed) for o in found] == [("stream", True), ("initial_weights", True)]
    assert roles(results)["stream"] == "seed"
    assert provenance.comparable_sets(results) == [(0, 1), (2,)]


def test_seeds_do_not_hide_a_difference_within_a_seed(make_result):
    odd = make_result(seed=1, fingerprints={"stream": OTHER})
    found = provenance.obstacles([make_result(seed=1), make_result(seed=2), odd])
    assert {o.field: o.by_seed for o in found} == {"stream": False, "initial_weights": True}


def test_a_stream_that_two_seeds_share_is_not_explained_by_the_seed(make_result):
    shared = {"stream": OTHER}
    odd = [make_result(seed=1, fingerprints=shared), make_result(seed=2, fingerprints=shared)]
    found = provenance.obstacles([*odd, make_result(seed=2)])
    assert not next(o for o in found if o.field == "stream").by_seed


def test_the_articles_workers_stand_for_its_streams():
    results = [article(num_workers=0), article(num_workers=4), article(tf32_enabled=True)]
    assert provenance.comparable_sets(results) == [(0, 2), (1,)]
    (obstacle,) = provenance.obstacles(results)
    assert obstacle.field == "workers"
    assert [value.value for value in obstacle.values] == [0, 4]


def test_files_of_the_article_and_runs_are_never_one_set(make_result):
    assert provenance.comparable_sets([article(), make_result()]) == [(0,), (1,)]


def test_what_differs_is_told_apart_by_what_it_means(make_result):
    results = [
        make_result("a", data_source="tfds", environment={"versions": {"numpy": "1.9", "t": "1"}}),
        make_result("b", framework="jax", lr=0.1, environment={"versions": {"numpy": "2.0"}}),
    ]
    assert roles(results) == {
        "framework": "treatment",
        "lr": "treatment",
        "data_source": "machine",
        "versions.numpy": "machine",
    }


def test_a_variable_set_in_one_run_only_differs_from_absent(make_result):
    results = [make_result(), make_result(environment={"variables": {"XLA_FLAGS": "--x"}})]
    (difference,) = provenance.differences(results)
    assert [value.value for value in difference.values] == [None, "--x"]


def test_a_field_is_compared_among_the_kinds_that_have_it(make_result):
    assert not {"lr", "batch_size", "tpu_name"} & roles([article(), make_result()]).keys()


def test_nothing_differs_between_copies(make_result):
    assert provenance.differences([make_result("a"), make_result("b")]) == []
