import json

import pytest

from docs import exact_table, speed_table, table
from docs.readme import README


@pytest.mark.parametrize("made", [table, exact_table, speed_table], ids=lambda made: made.__name__)
def test_the_table_is_what_the_figures_say(made):
    figures = json.loads(made.FIGURES.read_text())
    shown = README.read_text().split(made.BEGIN)[1].split(made.END)[0]
    assert shown == made.render(figures, figures["date"])


def test_exact_runs_ended_in_one_trajectory_and_float32_runs_did_not():
    digests = json.loads(exact_table.FIGURES.read_text())["digests"]
    distinct = {name: len(set(map(tuple, runs.values()))) for name, runs in digests.items()}
    assert distinct.pop("float32, Adam") > 1
    assert set(distinct.values()) == {1}
