import re
from pathlib import Path

import numpy as np
import pytest

from parity import results as reading
from parity.article import files
from parity.comparison import compare
from parity.results import from_article
from parity.tables import as_text

CURVES = {"train_loss": [1.5, 1.2], "train_acc": [50.0, 60.0], "test_loss": [1.4, 1.1]}


def report(results, **options) -> str:
    return as_text(compare(results, threshold=70.0, **options))


@pytest.fixture
def cases(make_result):
    """Return comparisons of very different kinds, by name."""
    steps = np.linspace(2.3, 0.7, 20).astype(np.float32)
    noisy = {"steps": steps * np.float32(1.001), "digests": ["e" * 64] * 5}
    article = [
        from_article(
            files.parse(
                CURVES | {"test_acc": [60.0 + i, 70.0 + i], "num_workers": i % 2 * 4},
                Path(
                    f"deterministic_NVIDIA_GeForce_RTX_3060_tf32_False_w{i}_20251226_0750{i}.json"
                ),
            )
        )
        for i in range(4)
    ]
    return {
        "one": [make_result("alone")],
        "bitwise": [make_result("a"), make_result("b", framework="jax")],
        "close": [make_result("a"), make_result("b", framework="jax", **noisy)],
        "constant": [make_result(accuracy=(10.0,) * 5), make_result(accuracy=(11.0,) * 5)],
        "lengths": [make_result("a"), make_result("b", accuracy=(60.0, 66.0))],
        "seeds": [
            make_result(f"a-very-long-name-of-a-run-{f}-{seed}", seed=seed, framework=f)
            for seed in range(20)
            for f in ("jax", "torch")
        ],
        "states": [
            make_result("a"),
            make_result("b", accuracy=(), status="running"),
            make_result("c", accuracy=(60.0,), status="failed", failure={"message": "NaN loss"}),
        ],
        "unfinished": [make_result(accuracy=(60.0,), status="running")],
        "other data": [make_result("a"), make_result("b", fingerprints={"data": "0" * 64})],
        "article": article,
        "mixed": [*article, make_result("run")],
    }


def test_no_line_is_longer_than_100_columns_and_none_says_same(cases):
    for name, results in cases.items():
        text = report(results)
        assert max(map(len, text.splitlines())) <= 100, name
        assert not re.search(r"\b[Ss]ame\b|\bnan\b", text), name
        assert "\x1b" not in text


def test_a_hundred_and_more_runs_stay_short(make_result):
    results = [make_result(f"run-{i}", seed=i // 2) for i in range(300)]
    assert len(report(results).splitlines()) < 120


def test_obstacles_are_told_before_any_group_and_with_their_runs(cases):
    text = report(cases["other data"])
    assert text.index("NOT COMPARABLE. OTHER DATA") < text.index("Groups by")
    assert "data 000000000000: run 2" in text
    assert "No setting explains it" in text
    assert "set 2: run 2" in text


def test_seeds_are_explained_but_not_shouted_about(cases):
    text = report(cases["seeds"])
    assert "NOT COMPARABLE" not in text
    assert "20 seeds: each has its own" in text
    assert "20 more results in --json." not in text
    assert "32 more results in --json." in text


def test_the_articles_streams_are_said_to_be_unknown(cases):
    text = " ".join(report(cases["article"]).split())
    assert "cannot be checked from the files" in text
    assert "NOT COMPARABLE. ANOTHER STREAM: loader workers" in text


def test_kinds_are_grouped_each_in_its_own_way(cases):
    text = report(cases["mixed"])
    assert "Groups by framework, platform, arithmetic, optimizer" in text
    assert "Groups by file_kind, optimizer, label" in text
    assert "3 sets that are not comparable with one another" in text


def test_states_are_shown_and_explained(cases):
    text = report(cases["states"])
    assert "1 finished, 1 running, 1 failed" in text
    assert "Run 3 failed: NaN loss" in text
    assert "Unfinished runs are left out of groups and verdict" in text
    assert "no groups and no verdict yet" in report(cases["unfinished"])


def test_an_undefined_correlation_is_called_so(cases):
    assert "undefined" in report(cases["constant"])


def test_unequal_lengths_are_said(cases):
    assert "Finished runs have 2 to 5 epochs" in report(cases["lengths"])


def test_the_verdict_is_in_the_three_words(cases):
    assert "Bitwise identical: 2 runs" in report(cases["bitwise"])
    assert "bitwise, 5 epochs" in report(cases["bitwise"])
    text = " ".join(report(cases["close"]).split())
    assert "Not bitwise: a loss first differs at step 1" in text
    assert "Close: up to step 20" in text
    assert "does not compare bits" in text


def test_seeds_that_are_bitwise_by_themselves_are_said_to_be(make_result):
    text = report(
        [make_result(seed=seed, framework=f) for seed in (1, 2, 3) for f in ("jax", "torch")]
    )
    assert "Bitwise identical, each by itself: all 3 seeds" in text
    noisy = make_result(seed=1, platform="gpu:0", digests=["e" * 64] * 5)
    text = report([make_result(seed=1), noisy, make_result(seed=2), make_result(seed=2)])
    assert "Bitwise identical, each by itself: 1 of the 2 seeds" in text


def test_pairs_that_are_all_bitwise_take_one_line(make_result):
    text = report([make_result(f"run-{i}") for i in range(4)])
    assert "All 6 are bitwise" in text
    assert "by step" not in text


def test_equivalence_comes_with_its_margin(make_result):
    results = [
        make_result(seed=s, framework=f, accuracy=(60.0, 69.0 + s / 10 + s * (f == "jax") / 2))
        for s in (1, 2, 3)
        for f in ("jax", "torch")
    ]
    assert "paired by seed" in report(results)
    assert re.search(r"A - B +\+1\.000 +\[\+0\.157, \+1\.843\] +±1\.843", report(results))


def test_danger_signs_come_with_their_limits(cases):
    text = " ".join(report(cases["close"]).split())
    for limit in ("(limit 10 %)", "(limit 5 pp)", "(limit 0.95)"):
        assert limit in text


def test_the_published_files_fit_and_name_their_copies(article_results):
    text = report(reading.read([article_results]).results)
    assert max(map(len, text.splitlines())) <= 100
    assert " ".join(text.split()).count("equal in every bit of all 40 logged figures") == 3
    assert re.search(r"workers +0 - 4 +7 +\+1\.690", text)


def test_the_published_figures_stand_in_compact_tables(article_results):
    text = report(reading.read([article_results]).results)
    tables = text[text.index("The article's figures") : text.index("Pairs:")]
    assert len(tables.splitlines()) < 70
    for row in (
        r"TPU +2 +78\.4550 +0\.0050 +78\.45 +78\.46 +0\.01 +0\.985354 +epoch 3 +5\.510",
        r"all +16 +77\.8906 +0\.2688 +77\.59 +78\.46 +0\.87 +0\.985069",
        r"A100 +0\.9788 +0\.9982 +- +0\.9986 +0\.9934 +0\.9903 +76\.00 +70\.33 +68\.88",
        r"mean +76\.60 +72\.68 +69\.09",
        r"workers 4 +- +- +76\.38±\.51/3 +76\.11±\.07/2 +76\.56±\.11/2 +76\.73±\.09/2",
        r"on, off, 4 +- +- +77\.07/1 +- +- +-",
    ):
        assert re.search(row, tables), row


def test_runs_alone_have_no_table_of_the_article(cases):
    assert "The article's figures" not in report(cases["bitwise"])
