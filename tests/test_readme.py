import json

import pytest

from docs import exact_table, speed_table, study_table, table
from docs.readme import README

TABLES = [table, exact_table, speed_table, study_table]


@pytest.mark.parametrize("made", TABLES, ids=lambda made: made.__name__)
def test_the_table_is_what_the_figures_say(made):
    figures = json.loads(made.FIGURES.read_text())
    shown = README.read_text().split(made.BEGIN)[1].split(made.END)[0]
    assert shown == made.render(figures, figures["date"])


def test_exact_runs_ended_in_one_trajectory_and_float32_runs_did_not():
    digests = json.loads(exact_table.FIGURES.read_text())["digests"]
    distinct = {name: len(set(map(tuple, runs.values()))) for name, runs in digests.items()}
    assert distinct.pop("float32, Adam") > 1
    assert set(distinct.values()) == {1}


def test_a_studys_runs_that_differ_in_no_product_ended_in_the_same_bits():
    article = json.loads(study_table.FIGURES.read_text())["article"]
    cells = [cell for places in article.values() for cell in places.values()]
    assert {cell["different"] for cell in cells} == {1}
    assert max(cell["runs"] for cell in cells) > 1


def test_the_figures_that_the_readme_shows_are_there():
    for name in study_table.DRAWN:
        assert f"(docs/study-{name}.svg)" in README.read_text()
        assert b"<svg" in (README.parent / "docs" / f"study-{name}.svg").read_bytes()
