"""What the ruler makes of times, and that cases really take turns."""

import sys

import pytest

from benchmarks import ruler
from parity.errors import RunFailed

REQUEST = {"framework": "torch", "config": {"threads": 1}}


def test_a_ratio_is_taken_within_a_round():
    # The machine is half as fast in the second round, for both.
    assert ruler.ratio([1, 2, 1.5], [2, 4, 2]) == (0.5, 0.5, 0.75)


def test_a_spread_is_median_least_and_largest():
    assert ruler.spread([5, 1, 2]) == (2, 1, 5)


@pytest.fixture
def turns_of(monkeypatch, tmp_path):
    """Let workers be a program of the test's own, which the request's name reaches."""
    program = tmp_path / "program.py"

    def interleaved(text: str, names: str) -> list[ruler.Case]:
        program.write_text(text)
        interpreter = tmp_path / "python"
        interpreter.write_text(f'#!/bin/sh\nexec {sys.executable} {program} "$3"\n')
        interpreter.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(interpreter))
        with ruler.cases({name: REQUEST | {"name": name} for name in names}) as cases:
            ruler.interleave(cases, rounds=3)
        return cases

    return interleaved


COUNTING = """
import json, pathlib, sys
log = pathlib.Path(__file__).with_name("log")
name = json.loads(sys.argv[1])["name"]
print(json.dumps({"warm": name}), flush=True)
for turn, _ in enumerate(sys.stdin):
    with log.open("a") as file:
        file.write(name)
    print(json.dumps({"turn": turn}), flush=True)
"""


def test_cases_take_turns(turns_of, tmp_path):
    cases = turns_of(COUNTING, "AB")
    assert (tmp_path / "log").read_text() == "ABABAB"
    assert [case.values("turn") for case in cases] == [[0, 1, 2], [0, 1, 2]]
    assert [case.environment for case in cases] == [{"warm": "A"}, {"warm": "B"}]


def test_a_case_that_dies_is_named(turns_of):
    with pytest.raises(RunFailed, match="case B ended with status 3"):
        turns_of('import sys\nsys.exit(3 * ("B" in sys.argv[1])) or print("{}")', "B")


def test_a_case_runs_on_its_own_threads_and_instruction_set(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    config = {"threads": 2, "device": "cpu"}
    environment = ruler.environment_of({"framework": "jax", "config": config})
    assert environment["OMP_NUM_THREADS"] == environment["NPROC"] == "2"
