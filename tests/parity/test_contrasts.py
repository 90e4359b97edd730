import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.bits import twins
from parity.contrasts import Contrast, contrasts, distinct
from parity.provenance import comparable_sets


def sets_of(results) -> dict[int, int]:
    return {i: n for n, members in enumerate(comparable_sets(results)) for i in members}


def contrasted(results) -> dict[str | None, Contrast]:
    found = contrasts(results, range(len(results)), sets_of(results))
    return {contrast.field: contrast for contrast in found}


def final(x: float) -> tuple[float, ...]:
    return (60.0, 65.0, x)


def test_pairs_differ_in_one_thing_alone(make_result):
    results = [
        make_result(platform="cpu", accuracy=final(70.0)),
        make_result(platform="cpu", accuracy=final(70.3)),
        make_result(platform="gpu:0", accuracy=final(71.0)),
        make_result(platform="gpu:0", framework="jax", accuracy=final(75.0)),
        make_result(platform="cpu", seed=1, accuracy=final(69.0)),
    ]
    found = contrasted(results)
    assert found[None].num_pairs == 1
    assert found[None].typical == pytest.approx(0.3)
    assert found["platform"].num_pairs == 2
    assert found["platform"].typical == pytest.approx(math.sqrt((1.0**2 + 0.7**2) / 2))
    assert (found["platform"].largest, found["platform"].examples) == (1.0, ((0, 2),))
    assert (found["framework"].num_pairs, found["framework"].largest) == (1, 4.0)
    assert found["seed"].num_pairs == 2
    assert found["seed"].other_stream
    assert not found["platform"].other_stream


def test_runs_on_another_stream_without_a_setting_to_explain_it_make_no_pair(make_result):
    other = make_result(platform="gpu:0", fingerprints={"stream": "0" * 64})
    assert contrasted([make_result(), other]) == {}


def test_runs_on_other_data_make_no_pair(make_result):
    other = make_result(seed=1, fingerprints={"data": "0" * 64})
    assert contrasted([make_result(), other]) == {}


def test_optimizers_are_kept_apart(make_result):
    results = [
        make_result(platform=p, optimizer=o, accuracy=final(x))
        for p, o, x in (("a", "adam", 70), ("b", "adam", 71), ("a", "sgd", 60), ("b", "sgd", 64))
    ]
    found = contrasts(results, range(4), sets_of(results))
    assert [(c.field, c.optimizer, c.typical) for c in found] == [
        ("platform", "adam", 1.0),
        ("platform", "sgd", 4.0),
        ("optimizer", None, pytest.approx(math.sqrt((10**2 + 7**2) / 2))),
    ]


finals = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(6900, 7100).map(lambda x: x / 100)),
    min_size=2,
    max_size=8,
)


@given(finals)
def test_figures_are_those_of_all_pairs_one_by_one(make_result, runs):
    results = [make_result(platform=p, accuracy=final(x)) for p, x in runs]
    apart = [abs(x - y) for (p, x), (q, y) in itertools.combinations(runs, 2) if p != q]
    found = contrasted(results).get("platform")
    if not apart:
        assert found is None
    else:
        assert found is not None
        assert found.num_pairs == len(apart)
        assert found.largest == pytest.approx(max(apart), abs=1e-9)
        # Rounding: the squares come as a difference of sums.
        squares = sum(x * x for x in apart) / len(apart)
        assert found.typical == pytest.approx(math.sqrt(squares), abs=1e-6)


def test_copies_are_left_out_unless_a_known_setting_differs(make_result):
    results = [
        make_result("a"),
        make_result("b"),
        make_result("c", platform="gpu:0"),
        make_result("d", accuracy=final(70.0)),
    ]
    assert distinct(results, range(4), twins(results)) == [0, 2, 3]
