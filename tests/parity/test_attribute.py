"""The command: what it prints and writes, and what it says of mistakes."""

import json
import re
import subprocess
import sys

import pytest

from parity import attribute, ladder, runs
from parity.errors import RunFailed, UserError
from parity.exact.operations import OPERATIONS

CPUS = "torch:cpu", "torch:cpu:sse4"


def run_command(*arguments):
    command = [sys.executable, "-m", "parity.attribute", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_two_instruction_sets_are_told_apart(tmp_path):
    try:
        ladder.parse_sides(*CPUS)
    except UserError as error:
        pytest.skip(str(error))
    out = tmp_path / "result"
    small = ("--operations", "dot", "--batch-size", "16", "--threads", "1", "--out", out)
    outcome = run_command(*CPUS, *small)
    assert outcome.returncode == 0, outcome.stderr
    assert max(map(len, outcome.stdout.splitlines())) <= 100
    assert [line.split(":")[0] for line in outcome.stderr.splitlines()] == [
        f"run {number} of 6" for number in range(1, 7)
    ]
    document = json.loads((out / "attribution.json").read_text())
    assert document["sides"] == list(CPUS)
    assert document["num_steps"] == 2
    everything, (dot,), nothing = (document[n] for n in ("everything", "alone", "nothing"))
    assert nothing["typical"] == nothing["farthest"] == nothing["values_percent"] == 0
    assert nothing["first_step"] is None
    # float32 rounds to 6e-8; a mistake in the settings would part runs altogether, by about 1.
    for rung in (everything, dot):
        assert 1e-9 < rung["typical"] < 1e-2
        assert rung["values_percent"] > 1
    assert document["verdict"] in " ".join(outcome.stdout.split())
    for folder, exact_only in (("float32", ()), ("exact", ()), ("dot", tuple(OPERATIONS)[1:])):
        record = runs.read_record(out / folder / "torch-cpu-sse4")
        assert (record.status, record.config.exact_only) == ("finished", exact_only)


# A mistake: what is typed, and what the message must match.
MISTAKES = {
    "no framework": (("cpu", "jax:cpu"), "'cpu' is no framework on a platform"),
    "one side twice": (("jax:cpu", "jax:cpu"), "Both are jax:cpu, which cannot differ"),
    "unknown operation": (
        ("jax:cpu", "torch:cpu", "--operations", "dot,conv"),
        "--operations: 'conv' is no operation. Choose from dot, batchnorm",
    ),
    "operation twice": (
        ("jax:cpu", "torch:cpu", "--operations", "dot,dot"),
        "--operations: 'dot' is named more than once",
    ),
    "no step": (("jax:cpu", "torch:cpu", "--steps", "0"), "--steps is 0, but must be at least 1"),
    "no batch": (
        ("jax:cpu", "torch:cpu", "--batch-size", "0"),
        "--batch-size is 0, but must be at least 1",
    ),
    "a folder in use": (
        ("jax:cpu", "torch:cpu", "--out", "{place}"),
        "--out {place} is not empty. Choose another folder",
    ),
    "too many images": (
        ("torch:cpu", "jax:cpu", "--steps", "1000", "--out", "{place}/new"),
        "--steps times --batch-size is 32,000, but digits has 1,437 training images. Ask for few",
    ),
    "too many threads": (
        ("torch:cpu", "jax:cpu", "--threads", "10000"),
        r"--threads is 10000, but this process has \d+ cores",
    ),
    "a folder of digits": (
        ("torch:cpu", "jax:cpu", "--data-dir", "{place}"),
        "--data-dir is {place}, but digits come with scikit-learn. Leave it out",
    ),
    "no float64": (
        ("torch:cpu", "jax:tpu"),
        "jax:tpu cannot be compared: A TPU has no IEEE float64, which exact operations need",
    ),
    "no operation": (
        ("torch:cpu", "jax:cpu", "--operations", "none"),
        "--operations is none. Choose from dot, batchnorm",
    ),
    "operations in parts": (
        ("torch:cpu", "jax:cpu", "--operations", "dot", "--operations", "softmax"),
        "--operations is given 2 times. Give it once, the names joined by commas",
    ),
    "one side only": (("jax:cpu",), "required"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_clear_message_and_status_2(mistake, monkeypatch, tmp_path, capsys):
    (tmp_path / "file").touch()  # so that the folder is in use
    monkeypatch.setattr(ladder, "run", lambda *_: pytest.fail("found only by a run"))
    arguments, message = MISTAKES[mistake]
    typed = [argument.format(place=tmp_path) for argument in arguments]
    monkeypatch.setattr(sys, "argv", ["attribute", *typed])
    with pytest.raises(SystemExit) as ended:
        attribute.main()
    out, err = capsys.readouterr()
    assert ended.value.code == 2
    assert out == ""
    text = " ".join(re.sub("[│─╭╮╰╯]", " ", err).split())
    assert re.search(message.replace("{place}", str(tmp_path)), text), text
    assert [path.name for path in tmp_path.iterdir()] == ["file"]  # as it was


@pytest.mark.parametrize("error", [UserError("no GPU"), RunFailed("NaN"), KeyboardInterrupt()])
@pytest.mark.parametrize("there", [True, False])
def test_a_ladder_that_fails_leaves_the_folder_to_the_next_try(tmp_path, monkeypatch, error, there):
    out = tmp_path / "result"
    if there:
        out.mkdir()

    def run(side, settings, arguments, folder):
        folder.mkdir(parents=True)
        raise error

    monkeypatch.setattr(ladder, "run", run)
    monkeypatch.setattr(sys, "argv", ["attribute", "torch:cpu", "jax:cpu", "--out", str(out)])
    for _ in range(2):
        with pytest.raises(SystemExit) as ended:
            attribute.main()
        assert ended.value.code == {UserError: 2, RunFailed: 1}.get(type(error), 130)
        assert out.exists() == there
        assert list(tmp_path.rglob("*")) == [out] * there


def test_help_names_every_option_and_is_fast():
    command = [sys.executable, "-X", "importtime", "-m", "parity.attribute", "--help"]
    outcome = subprocess.run(command, capture_output=True, text=True, check=True)
    for option in ("--operations", "--steps", "--optimizer", "--out", "--quiet"):
        assert option in outcome.stdout
    loaded = {
        line.split("|")[-1].strip().split(".")[0]
        for line in outcome.stderr.splitlines()
        if line.startswith("import time:")
    }
    assert {"parity", "tyro"} <= loaded  # so the list is whole
    assert not {"jax", "torch", "numpy", "sklearn"} & loaded
