import json

from docs.table import BEGIN, END, FIGURES, README, render


def test_the_table_is_what_the_figures_say():
    figures = json.loads(FIGURES.read_text())
    shown = README.read_text().split(BEGIN)[1].split(END)[0]
    assert shown == render(figures, figures["date"])
