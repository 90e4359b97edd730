"""The ladder's runs: which commands are given, and what becomes of one that fails."""

import subprocess
from dataclasses import replace

import numpy as np
import pytest

from parity import ladder, runs, weights
from parity.architecture import initial_weights
from parity.config import TrainConfig
from parity.errors import RunFailed, UserError
from parity.exact.operations import OPERATIONS
from parity.platforms import Platform

SETTINGS = TrainConfig(
    dataset="digits", train_size=64, batch_size=32, test_size=1, epochs=1, threads=1
)
SIDES = (ladder.Side("torch", Platform("cpu")), ladder.Side("jax", Platform("gpu", index=1)))


@pytest.mark.parametrize(
    ("text", "name"),
    [("torch:cpu", "torch:cpu"), ("jax:gpu", "jax:gpu:0"), ("torch:cuda", "torch:gpu:0")],
)
def test_a_side_is_a_framework_on_a_platform(text, name):
    assert ladder.parse_side(text).name == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cpu", "'cpu' is no framework on a platform. Write FRAMEWORK:PLATFORM, the framework one"),
        ("torch", "'torch' is no framework on a platform.*torch:cpu, torch:cpu:avx2 or jax:gpu"),
        ("keras:cpu", "the framework one of jax, torch, such as"),
        ("jax:", "'jax:' is no framework on a platform"),
        ("jax:mps", "--device mps is no platform of jax_impl. Choose one of: cpu"),
    ],
)
def test_what_is_no_side_is_told_what_one_is(text, message):
    with pytest.raises(UserError, match=message):
        ladder.parse_side(text)


def test_a_side_cannot_differ_from_itself():
    with pytest.raises(UserError, match=r"Both are torch:gpu:0.*Give another framework or pl"):
        ladder.parse_sides("torch:gpu", "torch:cuda:0")


@pytest.fixture
def climbed(make_record, tmp_path, monkeypatch):
    """Return a function that climbs without training: the ladder, and each command's arguments."""

    def climb(operations=tuple(OPERATIONS), *, differing=True):
        given = []

        def command(arguments, **_):
            given.append(arguments)
            out = arguments[arguments.index("--out") + 1]
            native = "--arithmetic" not in arguments
            final = initial_weights(SETTINGS.seed)
            value = 0.25 if differing and native and "jax_impl.train" in arguments else 0.125
            final["fc2.bias"] = np.full_like(final["fc2.bias"], value)
            record = replace(make_record(out, accuracy=(50.0,)), path=tmp_path / out)
            record.path.mkdir(parents=True)
            record = runs.write_file(record, runs.WEIGHTS, weights.to_bytes(final))
            runs.write_record(record)
            return subprocess.CompletedProcess(arguments, 0, "", "")

        monkeypatch.setattr(subprocess, "run", command)
        heard = []
        result = ladder.climb(
            SIDES, SETTINGS, operations, tmp_path, lambda *told: heard.append(told)
        )
        return result, given, heard

    return climb


def test_each_operation_is_native_alone_between_all_and_none(climbed, tmp_path):
    result, given, heard = climbed()
    assert result.sides == ("torch:cpu", "jax:gpu:1")
    assert result.num_steps == 2
    assert result.everything.native == tuple(OPERATIONS)
    assert [rung.native for rung in result.alone] == [(name,) for name in OPERATIONS]
    assert result.nothing is not None
    assert result.nothing.native == ()
    assert result.nothing.bitwise
    assert not result.everything.bitwise
    modules = [arguments[2] for arguments in given]
    assert modules == ["torch_impl.train", "jax_impl.train"] * (len(OPERATIONS) + 2)
    exactness = [arguments[arguments.index("--out") + 2 :] for arguments in given[::2]]
    assert exactness[:2] == [["--quiet"], ["--arithmetic", "exact", "--quiet"]]
    for operation, (flag, names, _) in zip(OPERATIONS, exactness[2:], strict=True):
        assert flag == "--exact-only"
        assert {*names.split(","), operation} == set(OPERATIONS)
        assert operation not in names.split(",")
    assert heard[0] == (1, 14, "torch:cpu, float32")
    assert heard[-1] == (14, 14, "jax:gpu:1, exact but optimizer")
    assert (tmp_path / "dot" / "jax-gpu-1" / runs.RECORD).exists()


def test_every_run_has_the_same_settings(climbed):
    _, given, _ = climbed(("dot",))
    assert len(given) == 6
    for arguments in given:
        flags = dict(zip(arguments[3::2], arguments[4::2], strict=False))
        assert flags["--device"] == ("cpu" if arguments[2] == "torch_impl.train" else "gpu:1")
        assert {
            name: flags[name]
            for name in ("--dataset", "--train-size", "--batch-size", "--epochs", "--threads")
        } == {
            "--dataset": "digits",
            "--train-size": "64",
            "--batch-size": "32",
            "--epochs": "1",
            "--threads": "1",
        }
        assert (flags["--optimizer"], flags["--seed"]) == ("adam", "42")


def test_without_a_difference_there_is_no_more_to_run(climbed):
    result, given, _ = climbed(differing=False)
    assert len(given) == 2
    assert result.everything.bitwise
    assert (result.alone, result.nothing) == ((), None)


TRACEBACK = """Traceback (most recent call last):
  File "train.py", line 1, in <module>
ValueError: our mistake
"""


@pytest.mark.parametrize(
    ("status", "stderr", "error", "message"),
    [
        (
            2,
            "error: torch is not installed. Run `pip install '.[torch]'`.\n",
            UserError,
            "^torch:cpu: python -m torch_impl.train says: torch is not installed. Run `pip install",
        ),
        (
            2,
            "Warning: old\nerror: PyTorch sees no gpu:0 on this machine, only cpu.\n",
            UserError,
            r"torch_impl\.train says: PyTorch sees no gpu:0 on this machine, only cpu\.$",
        ),
        (
            2,
            "error: There is no CIFAR-10. It comes in two ways:\n  one\n  another\n",
            UserError,
            r"says: There is no CIFAR-10. It comes in two ways:\n  one\n  another$",
        ),
        (
            2,
            "╭ Parsing error ╮\n│ --lr: ten │\n",
            UserError,
            r"says: ╭ Parsing error ╮\n│ --lr: ten │$",
        ),
        (
            1,
            "failed: it is NaN.\nSo.\n",
            RunFailed,
            "^torch:cpu, --arithmetic exact: it is NaN.\nSo.$",
        ),
        (1, TRACEBACK, RunFailed, "^torch:cpu, --arithmetic exact: ValueError: our mistake$"),
        (-9, "", RunFailed, "^torch:cpu, --arithmetic exact: it ended with status -9$"),
    ],
)
def test_a_run_that_ends_early_is_told_with_its_side(
    status, stderr, error, message, monkeypatch, tmp_path
):
    ended = subprocess.CompletedProcess([], status, "", stderr)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: ended)
    with pytest.raises(error, match=message):
        ladder.run(SIDES[0], SETTINGS, ["--arithmetic", "exact"], tmp_path)
