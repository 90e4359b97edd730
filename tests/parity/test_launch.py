"""From a command line to a run: what is taken over, what is refused, and how it is said."""

import importlib.util
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import numpy as np
import pytest

from parity import folders, launch, platforms, runs, weights
from parity.architecture import NUM_CLASSES, initial_weights
from parity.config import TrainConfig
from parity.errors import UserError
from parity.exact.operations import OPERATIONS
from parity.platforms import Platform
from parity.runs import RunRecord
from parity.trainer import Output

FRAMEWORKS = ("jax", "torch")
SMALL = ("--dataset", "digits", "--train-size", "20", "--test-size", "5", "--batch-size", "10")


@pytest.fixture(scope="module")
def begun(tmp_path_factory) -> RunRecord:
    """A run that was begun and has finished no epoch."""
    folder = tmp_path_factory.mktemp("begun")
    config = TrainConfig(
        device="cpu:sse4",
        threads=1,
        dataset="digits",
        train_size=200,
        optimizer="sgd",
        lr=0.01,
        batch_size=64,
        epochs=3,
        seed=7,
        out=folder,
    )
    record = RunRecord(
        config=config,
        environments=({"first_epoch": 1, "framework": "torch", "platform": "cpu"},),
        fingerprints={"data": "d", "stream": "s", "initial_weights": "w"},
        path=folder,
    )
    runs.write_record(record)
    return record


def test_without_resume_the_defaults_hold():
    config, record = launch.parse("jax", ["--seed", "3", "--device", "tpu"])
    assert record is None
    assert config == TrainConfig(seed=3, device="tpu")


@pytest.mark.parametrize("typed", ["dot,softmax", "dot, softmax"])
def test_operations_are_joined_by_commas(typed):
    config, _ = launch.parse("jax", ["--exact-only", typed, "--seed", "3"])
    assert config == TrainConfig(exact_only=("dot", "softmax"), seed=3)


def test_the_default_that_help_shows_for_operations_can_be_typed():
    config, _ = launch.parse("jax", ["--exact-only", "none"])
    assert config == TrainConfig()


def test_operations_given_in_parts_are_refused():
    with pytest.raises(UserError, match=r"--exact-only is given 2 times\. Give it once, the names"):
        launch.parse("jax", ["--exact-only", "dot", "--exact_only=softmax"])


@pytest.mark.parametrize("count", range(len(OPERATIONS) + 1))
def test_a_resumed_run_may_be_given_its_own_operations_again(begun, tmp_path, count):
    names = tuple(OPERATIONS)[:count]
    config = replace(begun.config, exact_only=names, out=tmp_path)
    runs.write_record(replace(begun, config=config, path=tmp_path))
    typed = ",".join(reversed(names)) or "none"
    resumed, _ = launch.parse("jax", ["--resume", str(tmp_path), "--exact-only", typed])
    assert resumed == replace(config, resume=tmp_path)


def test_operations_of_a_resumed_run_stay(begun):
    message = f"--exact-only is dot,softmax, but the run in {begun.path} has none."
    with pytest.raises(UserError, match=re.escape(message)):
        launch.parse("jax", ["--resume", str(begun.path), "--exact-only", "dot,softmax"])


@pytest.mark.parametrize("spelling", [["--resume", "{0}"], ["--resume={0}"]])
def test_resume_takes_over_the_recorded_configuration(begun, spelling):
    config, record = launch.parse("torch", [part.format(begun.path) for part in spelling])
    assert record == begun
    assert config == replace(begun.config, resume=begun.path)


def test_a_run_that_was_moved_goes_on_where_it_lies(begun, tmp_path):
    (tmp_path / runs.RECORD).write_bytes((begun.path / runs.RECORD).read_bytes())
    config, _ = launch.parse("torch", ["--resume", str(tmp_path)])
    assert config.out == tmp_path


@pytest.mark.parametrize(
    ("flag", "old", "new"),
    [
        ("--lr", 0.01, 0.1),
        ("--seed", 7, 42),
        ("--batch-size", 64, 128),
        ("--epochs", 3, 4),
        ("--optimizer", "sgd", "adam"),
        ("--arithmetic", "float32", "float64"),
        ("--dataset", "digits", "cifar10"),
        ("--train-size", 200, 300),
        ("--test-size", None, 300),
        ("--init-weights", None, Path("w.safetensors")),
    ],
)
def test_a_flag_that_contradicts_the_run_is_refused_with_both_values(begun, flag, old, new):
    message = f"{flag} is {new}, but the run in {begun.path} has {old}."
    with pytest.raises(UserError, match=re.escape(message) + r".*leave the flag out, or start"):
        launch.parse("torch", ["--resume", str(begun.path), flag, str(new)])


def test_a_flag_that_repeats_the_run_is_no_contradiction(begun):
    config, _ = launch.parse("torch", ["--resume", str(begun.path), "--seed", "7", "--lr", "1e-2"])
    assert (config.seed, config.lr) == (7, 0.01)


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        (["--device", "gpu:1"], "device", "gpu:1"),
        (["--threads", "8"], "threads", 8),
        (["--data-dir", "elsewhere"], "data_dir", Path("elsewhere")),
        (["--data-source", "binary"], "data_source", "binary"),
        (["--out", "fork"], "out", Path("fork")),
        (["--quiet"], "quiet", True),
    ],
)
def test_a_resumed_run_may_change_where_it_computes(begun, flags, field, value):
    config, _ = launch.parse("jax", ["--resume", str(begun.path), *flags])
    assert config == replace(begun.config, resume=begun.path, **{field: value})


class Idle:
    """A trainer that learns nothing."""

    holds_images = False

    def environment(self):
        return {"framework": "torch"}

    def load(self, state):
        self.tensors = dict(state)

    def state(self):
        return self.tensors

    def train_step(self, batch):
        return Output(np.float32(1), np.zeros((len(batch.labels), NUM_CLASSES), np.float32))

    test_step = train_step


@pytest.fixture
def command(monkeypatch, tmp_path, capsys):
    """Return a function that runs the command in this process: exit status, stdout, stderr."""
    monkeypatch.setattr(platforms, "enter", lambda platform, threads, kernels: None)
    monkeypatch.chdir(tmp_path)

    def run(*arguments) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["train", *map(str, arguments)])
        status = 0
        try:
            launch.main("torch", lambda *_: Idle(), default_source="binary", packages=())
        except SystemExit as exit:
            status = int(str(exit.code))
        return (status, *capsys.readouterr())

    return run


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def test_a_finished_run_stays_as_it_is_whatever_is_asked_of_it(command, tmp_path):
    folder = tmp_path / "run"
    assert command(*SMALL, "--epochs", "2", "--out", folder)[0] == 0
    before = snapshot(folder)
    assert set(before) == {runs.RECORD, runs.WEIGHTS, runs.PREDICTIONS}
    for arguments, status, message in (
        (["--resume", folder], 0, f"{folder} is finished: 2 epochs. Nothing to do.\n"),
        (["--resume", folder, "--device", "gpu"], 0, "Nothing to do"),
        (["--resume", folder, "--out", tmp_path / "fork"], 0, "Nothing to do"),
        (["--resume", folder, "--epochs", "3"], 2, "--epochs is 3, but the run in"),
        ([*SMALL, "--out", folder], 2, f"or go on with that run: --resume {folder}\n"),
    ):
        code, *output = command(*arguments)
        assert code == status
        assert message in "".join(output)
        assert snapshot(folder) == before
    assert not (tmp_path / "fork").exists()


def test_a_run_shows_what_it_does_and_quiet_shows_nothing(command, tmp_path):
    status, out, err = command(*SMALL, "--epochs", "2", "--out", tmp_path / "shown")
    assert (status, err) == (0, "")
    first, *epochs, digest, place = out.splitlines()
    assert first == "torch on cpu, float32, adam: 20 training and 5 test images of digits"
    assert [line[:10] for line in epochs] == ["epoch  1/2", "epoch  2/2"]
    assert re.fullmatch("weights sha256 [0-9a-f]{64}", digest)
    assert place == f"record {tmp_path / 'shown'}"
    assert command(*SMALL, "--quiet", "--out", tmp_path / "quiet") == (0, "", "")


def test_a_run_without_out_gets_a_folder_of_its_own(command, tmp_path, monkeypatch):
    class Noon(datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2026, 11, 30, 12, 0, 5)

    monkeypatch.setattr(folders, "datetime", Noon)
    for _ in range(3):  # three runs within one second
        assert command(*SMALL, "--epochs", "1", "--quiet") == (0, "", "")
    name = "torch-cpu-digits-float32-adam-seed42-20261130-120005"
    found = {path.name for path in (tmp_path / "runs").iterdir()}
    assert found == {name, f"{name}-2", f"{name}-3"}
    for path in (tmp_path / "runs").iterdir():
        assert runs.read_record(path).status == "finished"


def test_replicas_are_refused_where_the_framework_has_none(command):
    status, out, error = command(*SMALL, "--replicas", "2")
    assert (status, out) == (2, "")
    assert re.search(r"jax\.vmap, which torch_impl has not\. Leave it out, or use jax_impl", error)


@pytest.mark.parametrize("name", ["cpu", "cpu:avx2"])
def test_replicas_are_refused_on_a_cpu_with_the_reason(name):
    platform = platforms.parse(name, "jax")
    with pytest.raises(UserError, match=r"does not pay on a CPU.* 2\.5 times .* --device gpu"):
        launch.check_replicas("jax", lambda *_: pytest.fail("made"), platform, None)
    launch.check_replicas("jax", lambda *_: pytest.fail("made"), Platform("gpu"), None)


def test_replicas_are_refused_in_a_run_to_be_gone_on_with(begun):
    config, earlier = launch.parse("jax", ["--resume", str(begun.path), "--replicas", "2"])
    assert config.replicas == 2
    with pytest.raises(UserError, match=r"is one of its own.*Leave --replicas out"):
        launch.check_replicas("jax", lambda *_: pytest.fail("made"), Platform("gpu"), earlier)


def test_a_mistake_leaves_no_folder_of_replicas(tmp_path):
    def make():
        raise UserError("no such device")

    config = TrainConfig(replicas=2, out=tmp_path / "out", dataset="digits")
    with pytest.raises(UserError, match="no such device"):
        launch.run_replicas(make, config, {"framework": "jax", "platform": "gpu"}, "binary")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_name_holds_no_colon():
    config = TrainConfig(device="cpu:avx2")
    name = folders.default_folder("jax", config, Platform("cpu", level="avx2")).name
    assert name.startswith("jax-cpu-avx2-cifar10-float32-adam-seed42-")


def test_a_framework_that_is_not_installed_is_named_with_its_remedy(command, monkeypatch):
    def fingerprint(*_):
        raise PackageNotFoundError("torch")

    monkeypatch.setattr(platforms, "fingerprint", fingerprint)
    assert command(*SMALL) == (
        2,
        "",
        "error: torch is not installed. Run `pip install '.[torch]'`.\n",
    )


def test_a_disk_that_is_full_from_the_start_is_told_without_a_traceback(
    command, monkeypatch, tmp_path
):
    def write_record(record):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(launch, "write_record", write_record)
    status, _, err = command(*SMALL, "--out", tmp_path / "run")
    assert (status, err) == (
        2,
        f"error: {tmp_path / 'run'} cannot be written (No space left on device). "
        "Make room there, or choose another place.\n",
    )


# A mistake, what is typed, and what the message must match.
MISTAKES: dict[str, tuple[tuple[str, ...], str]] = {
    "unknown device": (
        ("--device", "npu"),
        r"--device npu is no platform of \w+_impl. Choose one of: cpu, cpu:sse4, .*gpu",
    ),
    "no batch": (("--batch-size", "0"), "--batch-size is 0, but must be at least 1."),
    "no number": (("--epochs", "ten"), "--epochs.* 'ten'"),
    "unknown flag": (("--bacth-size", "3"), "--bacth-size.*Perhaps you meant.*--batch-size INT"),
    "unknown choice": (("--optimizer", "lion"), "'lion'.*'adam', 'rmsprop', 'sgd'"),
    "too many threads": (
        ("--threads", "10000"),
        r"--threads is 10000, but this process has \d+ cores. Ask for no more",
    ),
    "out below a file": (
        (*SMALL, "--out", "{place}/file/run"),
        r"--out \S+/file/run cannot be written \(Not a directory\). Choose a folder that can.",
    ),
    "out with a run": (
        (*SMALL, "--out", "{begun}"),
        "--out {begun} holds a run already. Choose another folder, or go on with that run: "
        "--resume {begun}",
    ),
    "resume of no run": (
        ("--resume", "{place}/nothing"),
        "There is no run in {place}/nothing: it holds no record.json. Give the folder of a run.",
    ),
    "resume without a value": (("--resume",), "--resume.*expected"),
    "contradiction": (
        ("--resume", "{begun}", "--lr", "0.1"),
        "--lr is 0.1, but the run in {begun} has 0.01.",
    ),
    "too many images": (
        ("--dataset", "digits", "--train-size", "5000", "--out", "{place}/{framework}-size"),
        "--train-size is 5,000, but digits has 1,437 train images. Choose at most 1,437, or",
    ),
    "missing data": (
        (
            "--data-source",
            "binary",
            "--data-dir",
            "{place}/nowhere",
            "--out",
            "{place}/{framework}-data",
        ),
        r"{place}/nowhere holds no CIFAR-10 in its binary version\..*--dataset digits needs",
    ),
    "weights that do not fit": (
        (
            *SMALL,
            "--init-weights",
            "{place}/narrow.safetensors",
            "--out",
            "{place}/{framework}-weights",
        ),
        r"conv2.weight has shape \(64, 31, 3, 3\) in {place}/narrow.safetensors, "
        r"but SimpleCNN needs \(64, 32, 3, 3\).",
    ),
    "an operation that is none": (
        ("--exact-only", "dot,conv"),
        "--exact-only 'conv' is no operation. Choose from dot, batchnorm, .*joined by commas.",
    ),
    "device that is not here": (
        (*SMALL, "--device", "gpu", "--out", "{place}/{framework}-gpu"),
        r"(JAX|PyTorch) sees no gpu:0 on this machine, only cpu. Install .*choose one of these.",
    ),
}
OWN_MISTAKES: dict[tuple[str, str], tuple[tuple[str, ...], str]] = {
    ("jax", "a TPU that is not here"): (
        (*SMALL, "--device", "tpu", "--out", "{place}/tpu"),
        r"JAX sees no tpu on this machine, only .*`pip install '\.\[tpu\]'`, or",
    ),
    ("torch", "a TPU that is not here"): (
        ("--device", "tpu"),
        "--device tpu is no platform of torch_impl. Choose one of: cpu, .*mps, xla.",
    ),
}
CASES = {(f, name): case for name, case in MISTAKES.items() for f in FRAMEWORKS} | OWN_MISTAKES


@pytest.fixture(scope="module")
def told(begun, tmp_path_factory):
    """Make every mistake at the command line, two processes at a time, and return the outcomes."""
    place = tmp_path_factory.mktemp("place")
    (place / "file").touch()
    narrow = initial_weights(1) | {"conv2.weight": np.zeros((64, 31, 3, 3), np.float32)}
    weights.save(place / "narrow.safetensors", narrow)

    def run(case):
        (framework, name), (arguments, message) = case
        names = {"place": place, "begun": begun.path, "framework": framework}
        filled = [part.format(**names) for part in arguments]
        outcome = subprocess.run(
            [sys.executable, "-m", f"{framework}_impl.train", *filled],
            cwd=place,
            capture_output=True,
            text=True,
        )
        message = message.replace("{place}", str(place)).replace("{begun}", str(begun.path))
        return (framework, name), (outcome, message)

    with ThreadPoolExecutor(2) as pool:
        return dict(pool.map(run, CASES.items()))


@pytest.mark.parametrize(("framework", "name"), CASES)
def test_a_mistake_at_the_command_line_is_one_clear_message_and_status_2(told, framework, name):
    if name == "device that is not here" and platforms.nvidia_driver() is not None:
        pytest.skip("needs a machine without a GPU")
    if "TPU" in name and importlib.util.find_spec("libtpu") is not None:
        pytest.skip("needs a machine without libtpu")
    outcome, message = told[framework, name]
    assert outcome.returncode == 2
    assert outcome.stdout == ""
    # Mistakes that tyro finds stand in a frame.
    text = " ".join(re.sub("[│─╭╮╰╯]", " ", outcome.stderr).split())
    assert re.search(message, text)
    assert "Traceback" not in text
    assert "Warning" not in text
    assert len(re.findall("^(?:error: |╭|usage: )", outcome.stderr, re.MULTILINE)) == 1


def test_a_mistake_leaves_the_run_that_was_there(told, begun):
    assert runs.read_record(begun.path) == begun
    assert {path.name for path in begun.path.iterdir()} <= {runs.RECORD, ".lock"}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_help_names_every_flag_and_loads_no_framework(framework):
    command = [sys.executable, "-X", "importtime", "-m", f"{framework}_impl.train", "--help"]
    outcome = subprocess.run(command, capture_output=True, text=True)
    assert outcome.returncode == 0
    for field in TrainConfig.__dataclass_fields__:
        assert f"--{field.replace('_', '-')}" in outcome.stdout
    for operation in OPERATIONS:
        assert operation in outcome.stdout
    loaded = {
        line.split("|")[-1].strip().split(".")[0]
        for line in outcome.stderr.splitlines()
        if line.startswith("import time:")
    }
    assert {"parity", "tyro"} <= loaded  # so the list is whole
    assert not {"jax", "flax", "torch", "torchvision", "tensorflow", "sklearn"} & loaded


def test_a_preset_sets_what_it_stands_for_and_no_flag_may_contradict_it(capsys):
    config, _ = launch.parse("torch", ["--preset", "performance"])
    assert (config.arithmetic, config.workers, config.autotune, config.deterministic) == (
        *("tf32", 4, True),
        False,
    )
    agreeing, _ = launch.parse("torch", ["--preset", "performance", "--workers", "4"])
    assert agreeing == config
    for flags in (
        ("--preset", "performance", "--arithmetic", "float32"),  # the default, but here it was said
        ("--no-autotune", "--preset", "balanced"),
    ):
        with pytest.raises(SystemExit) as end:
            launch.parse("torch", list(flags))
        assert end.value.code == 2
        assert "contradicts it. Leave out one" in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--arithmetic", "tf32"), "TF32 is of NVIDIA GPUs"),
        (("--preset", "balanced"), "--autotune lets cuDNN or XLA time kernels"),
    ],
)
def test_what_a_device_cannot_do_is_refused_before_anything_is_loaded(
    framework, flags, reason, tmp_path
):
    out = tmp_path / "run"
    command = [sys.executable, "-m", f"{framework}_impl.train", *SMALL, *flags, "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {reason}")
    assert done.stderr.count("\n") == 1
    assert not out.exists()
