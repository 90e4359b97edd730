import pytest

from parity.provenance import Difference, Value
from parity.tables import notation


@pytest.mark.parametrize(
    ("members", "written"),
    [([4], "5"), ([0, 1], "1-2"), ([0, 2, 4], "1, 3, 5"), (range(0, 40, 2), "1, 3, 5, 7, 9, 11")],
)
def test_runs_are_numbered_from_1_in_at_most_eight_ranges(members, written):
    assert notation.numbers(members).startswith(written)
    assert len(notation.numbers(members).split(", ")) <= 9


def test_a_long_value_loses_its_middle():
    assert notation.short("a" * 50 + "b" * 50, 30) == "a" * 10 + "…" + "b" * 19
    assert notation.short(None) == "-"


def test_a_digest_is_written_in_twelve_digits():
    assert notation.value_in_words(Value("ab" * 32, (0,))) == "abababababab"


def test_values_are_named_with_their_runs_or_counted():
    difference = Difference("seed", "treatment", (Value(1, (0,)), Value(2, (1, 2))))
    assert notation.values_in_words(difference) == "1 (run 1), 2 (runs 2-3)"
    assert notation.values_in_words(difference, counted=True) == "2 (2), 1 (1)"


def test_a_value_of_each_run_its_own_is_not_listed():
    values = tuple(Value(f"runs/{i}", (i,)) for i in range(30))
    written = notation.values_in_words(Difference("out", "machine", values))
    assert written == "one for each run: runs/0, ..."
