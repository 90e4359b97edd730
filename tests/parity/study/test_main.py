"""The command as users type it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from parity.console import WIDTH
from parity.study import __main__ as study

ROOT = Path(__file__).parents[3]


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    """Return a function that runs the command: its exit status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["study", *map(str, arguments)])
        status = 0
        try:
            study.main()
        except SystemExit as end:
            status = int(end.code or 0)
        return status, *capsys.readouterr()

    return run


def test_plan_says_what_would_run_and_why_the_rest_would_not(command):
    status, out, err = command("plan", "article", "--on", "cpu", "--frameworks", "torch,jax")
    assert (status, err) == (0, "")
    # Of both frameworks' 130: 2 x 9 in TF32, 2 x 5 more with autotuning, 17 more that JAX alone
    # cannot let be nondeterministic.
    assert "130 runs, 85 applicable." in out
    assert re.search(r"optimizer +jax +cpu +rmsprop +float32 +True +0 +42 +5", out)
    assert re.search(r"18 +baseline, configuration +TF32 is of NVIDIA GPUs, and this is cpu", out)
    assert max(map(len, out.splitlines())) <= WIDTH


def test_options_make_a_study_small(command):
    small = ("--dataset", "digits", "--epochs", 1, "--train-size", 64, "--test-size", 32)
    _, out, _ = command("plan", "ablation", "--on", "cpu", *small)
    assert "10 runs, 10 applicable." in out
    assert "All: dataset digits, train_size 64, test_size 32, epochs 1, batch_size 128" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("plan", "artikel"), "There is no design artikel"),
        (("plan", "article"), "Say which of yours stand for them"),
        (("plan", "smoke", "--on", "cpux"), "--on cpux: "),
        (("plan", "smoke", "--on", "cpu,,cpu"), "holds an empty name"),
        (("plan", "smoke", "--frameworks", "keras"), "Choose from jax,torch"),
        (("run", "smoke", "--epochs", "0"), "must be at least 1"),
        (("run", "smoke", "--jobs", "0"), "--jobs is 0, but must be from 1 to"),
        (("run", "smoke", "--jobs", "100000"), "but must be from 1 to"),
        (("run", "smoke", "--out", "/proc/nowhere"), "--out /proc/nowhere cannot be written"),
        (("run", "smoke", "--frameworks", "torch", "--on", "tpu"), "no platform of torch_impl"),
        (("status", "smoke"), "There is no study in runs/smoke"),
        (("status", "elsewhere"), "There is no study in elsewhere"),
    ],
)
def test_a_mistake_ends_with_one_clear_line(command, arguments, message):
    status, out, err = command(*arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_a_mistake_leaves_no_folder(command, tmp_path):
    command("run", "smoke", "--jobs", "0")
    command("run", "smoke", "--on", "cpux")
    assert list(tmp_path.iterdir()) == []


def test_a_design_of_which_nothing_is_applicable_is_a_mistake(command, tmp_path):
    Path("later.toml").write_text('name = "later"\n[[runs]]\narithmetic = "tf32"')
    status, _, err = command("run", "later.toml")
    assert status == 2
    assert "No run of later is applicable. `plan` says why." in err
    assert not (tmp_path / "runs").exists()


def test_a_study_that_has_begun_keeps_its_choices(command, tmp_path):
    Path("one.toml").write_text('name = "one"\n[[runs]]\narithmetic = ["float32", "tf32"]')
    from parity.study import folder
    from parity.study.planning import Choices

    begun = folder.Study(
        design=study.study_of("one.toml", study.Options()).design,
        choices=Choices(on=("cpu:avx2",), overrides={"epochs": 3}),
        data_dir=tmp_path,
    )
    folder.begin(tmp_path / "begun", begun)
    assert study.study_of("begun", study.Options()) == begun
    status, out, _ = command("status", "begun")
    assert status == 0
    assert re.search(r"jax +cpu:avx2 +1 +waiting +0/3", out)
    status, _, err = command("run", "begun", "--epochs", 4)
    assert status == 2
    assert "has begun, with choices of its own" in err
    status, _, err = command("run", "begun", "--out", "other")
    assert status == 2
    assert "Leave --out out." in err
    (tmp_path / "begun" / "study.json").write_text('{"schema": "training-parity/study/1"')
    status, _, err = command("status", "begun")
    assert status == 2
    assert "is not whole" in err
    (tmp_path / "begun" / "study.json").write_text('{"schema": "training-parity/study/9"}')
    assert "Read it with the version that wrote it." in command("status", "begun")[2]


def test_help_waits_for_no_numpy():
    command = [sys.executable, "-X", "importtime", "-m", "parity.study", "run", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "parity.config" in loaded
    assert not {"numpy", "rich", "filelock"} & loaded


def test_a_real_study_ends_in_records_that_compare(tmp_path):
    Path(tmp_path, "tiny.toml").write_text(
        'name = "tiny"\nframeworks = ["torch"]\n[base]\ndataset = "digits"\nepochs = 1\n'
        "train_size = 128\ntest_size = 64\n[[runs]]\nrepeats = 2"
    )
    pytest.importorskip("torch")
    env = os.environ | {"PYTHONPATH": str(ROOT)}

    def run(*arguments: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=200
        )

    first = run("parity.study", "run", "tiny.toml")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "2 runs finished, 0 failed, 0 not applicable." in first.stdout
    compared = run("parity.compare", "runs/tiny")
    assert "Bitwise identical: 2 runs" in compared.stdout
    assert compared.stderr == ""
    again = run("parity.study", "run", "runs/tiny")
    assert again.returncode == 0
    assert [f.read_text().count("$ ") for f in tmp_path.glob("runs/tiny/*/log.txt")] == [1, 1]
