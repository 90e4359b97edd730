"""Real processes, killed, out of disk or moved to the other framework, end as they would have."""

import itertools
import json
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from parity import platforms
from parity.errors import UserError
from parity.runs import RunRecord, read_record

pytest.importorskip("resource", reason="needs RLIMIT_FSIZE, to fill a disk")
# One fixture starts fifteen processes: a minute on two free cores, several on busy ones.
pytestmark = pytest.mark.timeout(900)

FRAMEWORKS = ("jax", "torch")
OTHER = {"jax": "torch", "torch": "jax"}
RUN = (
    # Whole batches: JAX compiles once less.
    *("--dataset", "digits", "--train-size", "96", "--test-size", "32", "--batch-size", "32"),
    *("--epochs", "3", "--arithmetic", "float64", "--threads", "1"),
)

# Runs a training command, which something befalls before the third batch of its second epoch.
BEFALLEN = """
import resource, runpy, sys, time
from parity.data import pipeline

what, framework = sys.argv[1:3]
del sys.argv[1:3]
all_batches = pipeline.train_batches

def train_batches(*arguments, epoch, **options):
    for number, batch in enumerate(all_batches(*arguments, epoch=epoch, **options), start=1):
        if (epoch, number) == (2, 3):
            if what == "wait":
                time.sleep(600)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
        yield batch

pipeline.train_batches = train_batches
runpy.run_module(f"{framework}_impl.train", run_name="__main__", alter_sys=True)
"""


class Outcome(NamedTuple):
    """How a process ended."""

    status: int
    out: str
    err: str


def command(*arguments) -> Outcome:
    process = subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, text=True, timeout=280
    )
    return Outcome(process.returncode, process.stdout, process.stderr)


def train(framework: str, *arguments) -> Outcome:
    return command("-m", f"{framework}_impl.train", *arguments)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class Story(NamedTuple):
    """What was done in one framework."""

    folder: Path
    whole: Outcome
    second: Outcome
    left: dict[str, bytes]
    """The folder as the killed process left it."""
    resumed: Outcome
    full: Outcome
    full_record: RunRecord
    room: Outcome
    elsewhere: Outcome


def tell(framework: str, folder: Path) -> Story:
    """Train, kill, resume, fill the disk; run by a thread for each framework."""
    whole = train(framework, *RUN, "--out", folder / "whole")
    killed = folder / "killed"
    arguments = [sys.executable, "-c", BEFALLEN, "wait", framework, *RUN, "--out", str(killed)]
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL) as process:
        try:
            wait_for_epochs(killed, 1)
            second = train(framework, *RUN, "--out", killed)
        finally:
            process.kill()
    shutil.copytree(killed, folder / "left")
    resumed = train(framework, "--resume", killed)
    full = command("-c", BEFALLEN, "fill", framework, *RUN, "--out", folder / "full")
    full_record = read_record(folder / "full")
    room = train(framework, "--resume", folder / "full")
    threads = min(2, platforms.available_threads())
    elsewhere = train(
        *(framework, *RUN, "--epochs", 1, "--out", folder / "elsewhere"),
        *("--threads", threads, "--device", "cpu:sse4" if has_sse4() else "cpu"),
    )
    left = snapshot(folder / "left")
    return Story(folder, whole, second, left, resumed, full, full_record, room, elsewhere)


def has_sse4() -> bool:
    try:
        platforms.parse("cpu:sse4", "jax")
    except UserError:
        return False
    return True


def wait_for_epochs(folder: Path, number: int) -> None:
    for _ in range(1200):
        try:
            if len(read_record(folder).epochs) >= number:
                return
        except UserError:
            pass  # no record yet
        time.sleep(0.1)
    raise TimeoutError(f"{folder} did not come to epoch {number}.")


@pytest.fixture(scope="module")
def stories(tmp_path_factory) -> dict[str, Story]:
    folders = [tmp_path_factory.mktemp(framework) for framework in FRAMEWORKS]
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(FRAMEWORKS, pool.map(tell, FRAMEWORKS, folders), strict=True))


@pytest.fixture(scope="module")
def forks(stories, tmp_path_factory) -> dict[str, tuple[Outcome, Path]]:
    """Go on with each framework's killed run in the other one, in a new folder."""
    folder = tmp_path_factory.mktemp("forks")

    def fork(framework: str) -> tuple[Outcome, Path]:
        left, out = stories[framework].folder / "left", folder / framework
        return train(OTHER[framework], "--resume", left, "--out", out), out

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(FRAMEWORKS, pool.map(fork, FRAMEWORKS), strict=True))


def essence(record: RunRecord) -> dict:
    """Return what a run yielded, to the bit."""
    predictions = record.predictions()
    assert predictions is not None
    return {
        "status": record.status,
        "figures": [
            (e.train_loss, e.train_accuracy, e.test_loss, e.test_accuracy, e.weights_sha256)
            for e in record.epochs
        ],
        "losses": record.step_losses().tobytes(),
        "predictions": predictions.tolist(),
        "files": record.files,
        "fingerprints": record.fingerprints,
    }


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_run_says_nothing_on_stderr_and_the_digest_of_its_weights(stories, framework):
    story = stories[framework]
    record = read_record(story.folder / "whole")
    assert (story.whole.status, story.whole.err) == (0, "")
    assert f"weights sha256 {record.epochs[-1].weights_sha256}\n" in story.whole.out
    assert (record.status, len(record.epochs)) == ("finished", 3)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_killed_and_resumed_run_ends_with_the_bits_of_one_never_stopped(stories, framework):
    story = stories[framework]
    content = json.loads(story.left["record.json"])
    assert (content["status"], len(content["epochs"])) == ("running", 1)  # it was killed in time
    assert (story.resumed.status, story.resumed.err) == (0, "")
    killed, whole = (read_record(story.folder / name) for name in ("killed", "whole"))
    assert essence(killed) == essence(whole)
    assert [e["first_epoch"] for e in killed.environments] == [1, 2]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_two_processes_do_not_write_one_run(stories, framework):
    story = stories[framework]
    assert story.second.status == 2
    assert story.second.err == (
        f"error: Another process is training in {story.folder / 'killed'}. "
        "Wait for it, or choose another --out.\n"
    )


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_full_disk_stops_a_run_with_advice_and_it_goes_on_with_room(stories, framework):
    story = stories[framework]
    folder = story.folder / "full"
    assert story.full.status == 1
    assert story.full.err == (
        f"failed: {folder} cannot be written (File too large). It still holds 1 finished epochs; "
        f"make room, then add --resume {folder}.\n"
    )
    assert (story.full_record.status, len(story.full_record.epochs)) == ("running", 1)
    assert (story.room.status, story.room.err) == (0, "")
    assert essence(read_record(folder)) == essence(read_record(story.folder / "whole"))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_neither_threads_nor_instruction_set_change_what_goes_in(stories, framework):
    story = stories[framework]
    whole, elsewhere = (read_record(story.folder / name) for name in ("whole", "elsewhere"))
    assert story.elsewhere.status == 0
    assert elsewhere.fingerprints == whole.fingerprints
    if platforms.available_threads() > 1:
        assert whole.environments[0]["threads"] != elsewhere.environments[0]["threads"]
    if not has_sse4():
        pytest.skip("needs an x86-64 processor, for cpu:sse4")
    assert (whole.platforms, elsewhere.platforms) == ("cpu", "cpu:sse4")


def test_both_frameworks_are_fed_the_same(stories):
    jax, torch = (read_record(stories[f].folder / "whole") for f in FRAMEWORKS)
    assert jax.fingerprints == torch.fingerprints


RTOL = 1e-9
"""Relative L2 difference of a tensor after 9 steps in float64, as in test_float64_agreement."""

CANCELLED_RTOL = 1e-7
"""BatchNorm cancels the bias of the convolution before it. The bias's gradient is rounding noise,
which Adam scales up; bias and running mean follow it. See test_float64_agreement."""


def cancelled(name: str) -> bool:
    return (name.startswith("conv") and name.endswith("bias")) or "running_mean" in name


@pytest.mark.parametrize(("framework", "reference"), [*itertools.product(FRAMEWORKS, FRAMEWORKS)])
def test_a_run_that_goes_on_in_the_other_framework_ends_close_to_one_never_stopped(
    stories, forks, framework, reference
):
    outcome, folder = forks[framework]
    assert (outcome.status, outcome.err) == (0, "")
    fork, whole = read_record(folder), read_record(stories[reference].folder / "whole")
    assert fork.frameworks == f"{framework}->{OTHER[framework]}"
    assert fork.epochs[0].weights_sha256 == (
        read_record(stories[framework].folder / "whole").epochs[0].weights_sha256
    )
    found, expected = fork.final_weights(), whole.final_weights()
    assert found is not None
    assert expected is not None
    for name, array in expected.items():
        difference = np.linalg.norm(found[name] - array) / np.linalg.norm(array)
        assert difference < (CANCELLED_RTOL if cancelled(name) else RTOL), name


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_folder_that_was_forked_is_as_it_was_to_the_byte(stories, forks, framework):
    assert forks[framework][0].status == 0
    assert snapshot(stories[framework].folder / "left") == stories[framework].left
