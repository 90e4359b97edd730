from parity.confounding import confounded, mixture
from parity.provenance import comparable_sets


def suspected(results):
    set_of = {i: n for n, members in enumerate(comparable_sets(results)) for i in members}
    return confounded(results, range(len(results)), set_of)


def test_settings_that_changed_together_are_confounded(make_result):
    results = [
        make_result(platform="cpu", arithmetic="float32"),
        make_result(platform="gpu:0", arithmetic="float64"),
    ]
    found = suspected(results)
    assert [(c.field, c.value, c.others, c.pair) for c in found] == [
        ("platform", None, ("arithmetic",), (0, 1)),
        ("arithmetic", None, ("platform",), (0, 1)),
    ]


def test_settings_that_changed_alone_are_not_confounded(make_result):
    results = [
        make_result(platform=p, arithmetic=a, optimizer=o)
        for p in ("cpu", "gpu:0")
        for a in ("float32", "float64")
        for o in ("adam", "sgd")
    ]
    assert suspected(results) == []
    # One factor at a time is enough.
    assert suspected([results[0], results[1], results[2], results[4]]) == []


def test_one_value_that_never_stood_alone_is_named(make_result):
    results = [
        make_result(platform="cpu"),
        make_result(platform="cpu:avx2"),
        make_result(platform="cpu:avx2", arithmetic="float64"),
        make_result(platform="gpu:0", arithmetic="float64", optimizer="sgd"),
    ]
    found = {(c.field, c.value): c for c in suspected(results)}
    assert found["platform", "gpu:0"].others == ("optimizer",)
    assert found["platform", "gpu:0"].pair == (2, 3)
    assert ("platform", "cpu") not in found


def test_what_is_confounded_on_one_platform_is_told_with_it(make_result):
    whole = [
        make_result(platform="cpu", arithmetic=a, optimizer=o)
        for a in ("float32", "float64")
        for o in ("adam", "sgd")
    ]
    partial = [
        make_result(platform="gpu:0", arithmetic="float32", optimizer="adam"),
        make_result(platform="gpu:0", arithmetic="float64", optimizer="sgd"),
    ]
    found = suspected([*whole, *partial])
    assert [(c.field, c.platform, c.others, c.pair) for c in found] == [
        ("arithmetic", "gpu:0", ("optimizer",), (4, 5)),
        ("optimizer", "gpu:0", ("arithmetic",), (4, 5)),
    ]


def test_runs_of_two_streams_confound_nothing(make_result):
    # They are no evidence at all, which the obstacles say.
    results = [make_result(platform="cpu", seed=1), make_result(platform="gpu:0", seed=2)]
    assert suspected(results) == []


def test_another_stream_is_no_suspect_but_mixes_a_mean(make_result):
    results = [
        make_result(platform="a", fingerprints={"stream": "0" * 64}, batch_size=64),
        make_result(platform="b"),
        make_result(platform="a"),
    ]
    assert suspected(results) == []
    found = mixture(results, 0, range(3))
    assert found is not None
    assert dict(found.mixed)["batch_size"] == ((128, 2), (64, 1))


def test_many_seeds_of_one_design_are_looked_at_once(make_result):
    results = [
        make_result(platform=p, arithmetic=a, seed=s)
        for s in range(300)
        for p, a in (("cpu", "float32"), ("gpu:0", "float64"))
    ]
    assert [c.pair for c in suspected(results)] == [(0, 1), (0, 1)]


def test_a_group_over_unlike_settings_is_a_mixture(make_result):
    results = [
        make_result(platform="cpu", optimizer="adam"),
        make_result(platform="cpu", optimizer="adam", seed=1),
        make_result(platform="gpu:0", optimizer="sgd"),
    ]
    found = mixture(results, 3, range(3))
    assert found is not None
    assert (found.group, found.balanced) == (3, False)
    assert dict(found.mixed) == {
        "platform": (("cpu", 2), ("gpu:0", 1)),
        "optimizer": (("adam", 2), ("sgd", 1)),
    }


def test_a_full_design_is_balanced_and_seeds_are_no_mixture(make_result):
    results = [make_result(platform=p, seed=s) for p in ("cpu", "gpu:0") for s in (1, 2)]
    found = mixture(results, 0, range(4))
    assert found is not None
    assert found.balanced
    assert mixture(results, 0, [0, 1]) is None
    unequal = mixture(results, 0, range(3))
    assert unequal is not None
    assert not unequal.balanced
