"""A study's folder: what the study is, and how far each of its runs has come.

study.json          the design and the user's choices, from which the plan follows
RUN/record.json     the run itself, as its train command keeps it
RUN/attempt.json    when it was last tried, for how long and how that ended
RUN/log.txt         what its train command said
RUN/.claim          held by the study that is at this run
"""

import json
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from parity.command import writing
from parity.errors import UserError
from parity.files import write_atomically
from parity.runs import RECORD, RunRecord, read_record
from parity.study import design as designs
from parity.study.design import PLACE, Design
from parity.study.planning import Backend, Choices, PlannedRun, plan

SCHEMA = "training-parity/study/1"
STUDY = "study.json"
ATTEMPT = "attempt.json"
LOG = "log.txt"
TAIL = 6
"""Lines of a log that show how it ended."""

Status = Literal["finished", "running", "failed", "waiting", "not applicable"]


@dataclass(frozen=True, kw_only=True)
class Study:
    """What a study is, and where it runs."""

    design: Design
    choices: Choices
    backend: Backend = "local"
    data_dir: Path | None = None

    def plan(self) -> list[PlannedRun]:
        """Return its runs."""
        return plan(self.design, self.choices, self.backend)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {
            "schema": SCHEMA,
            "design": self.design.content,
            "choices": json.loads(json.dumps(asdict(self.choices))),
            "backend": self.backend,
            "data_dir": None if self.data_dir is None else str(self.data_dir),
        }


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """The last time that a run was tried."""

    began: float
    """Seconds since 1970."""
    host: str
    threads: int
    first_epoch: int
    seconds: float | None = None
    """How long it took; None until it ends, and for good if the study was killed."""
    exit_status: int | None = None
    last_lines: tuple[str, ...] = ()
    """Of the log of a run that failed."""

    @property
    def failed(self) -> bool:
        """Whether it came to an end, and not to a good one."""
        return self.exit_status not in (None, 0)


@dataclass(frozen=True, kw_only=True)
class State:
    """How far a run has come."""

    status: Status
    epochs: int = 0
    """Finished ones."""
    seconds: float = 0.0
    """Spent on these, over all attempts."""
    attempt: Attempt | None = None


def begin(folder: Path, study: Study) -> None:
    """Make the study's folder, or find it there.

    Raises:
        UserError: If it holds another study, or cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            if (folder / STUDY).exists():
                _refuse_another(folder, study)
            text = json.dumps(study.to_json(), indent=1) + "\n"
            write_atomically(folder / STUDY, lambda file: file.write(text.encode()))
    except OSError as error:
        raise UserError(
            f"--out {folder} cannot be written ({error.strerror}). Choose a folder that can."
        ) from None


def _refuse_another(folder: Path, study: Study) -> None:
    there, ours = read(folder).to_json(), study.to_json()
    for name in ("design", "choices"):
        if there[name] != ours[name]:
            raise UserError(
                f"{folder} holds another study: its {name} differ"
                f"{'s' if name == 'design' else ''}. Go on with that one by `run {folder}`, or "
                "choose another --out."
            )


def read(folder: Path) -> Study:
    """Return the study in a folder.

    Raises:
        UserError: If there is none, or its file is not whole.
    """
    file = folder / STUDY
    try:
        content = json.loads(file.read_text())
        if content["schema"] != SCHEMA:
            raise UserError(
                f"{file} has schema {content['schema']!r}, but this version reads {SCHEMA!r}. "
                "Read it with the version that wrote it."
            )
        choices = content["choices"]
        return Study(
            design=designs.parse(content["design"], str(file)),
            choices=Choices(
                frameworks=None if (f := choices["frameworks"]) is None else tuple(f),
                on=None if (on := choices["on"]) is None else tuple(on),
                overrides=choices["overrides"],
            ),
            backend=content["backend"],
            data_dir=None if content["data_dir"] is None else Path(content["data_dir"]),
        )
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"There is no study in {folder}: it holds no {STUDY}. Begin one with `run`."
        ) from None
    except UserError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{file} is not whole ({error!r}). Remove it and run the study again: finished runs "
            "are kept."
        ) from None


def record_of(run: PlannedRun, folder: Path) -> RunRecord | None:
    """Return a run's record, or None before it has begun.

    Args:
        run: An applicable one.
        folder: The study's.

    Raises:
        UserError: If the record is not whole, or is of another run.
    """
    path = folder / run.folder
    if not (path / RECORD).exists():
        return None
    assert run.config is not None
    record = read_record(path)
    for name, planned in run.config.to_json().items():
        # Threads are shared out by the study, unless the design sets them.
        if name in PLACE or (name == "threads" and planned is None):
            continue
        if (found := record.config.to_json()[name]) != planned:
            raise UserError(
                f"{path} holds another run: its {name} is {found}, the plan's {planned}. Move that "
                "folder away."
            )
    if record.environments and record.frameworks != run.framework:
        raise UserError(
            f"{path} holds another run: it ran in {record.frameworks}, the plan's framework is "
            f"{run.framework}. Move that folder away."
        )
    return record


def state(run: PlannedRun, folder: Path) -> State:
    """Return how far a run has come, also in another process."""
    if run.config is None:
        return State(status="not applicable")
    path = folder / run.folder
    attempt = read_attempt(path)
    try:
        record = record_of(run, folder)
    except UserError as error:
        lines = (str(error),)
        attempt = Attempt(
            began=time.time(), host="", threads=0, first_epoch=1, exit_status=2, last_lines=lines
        )
        return State(status="failed", attempt=attempt)
    epochs = record.epochs if record else ()
    status: Status = "waiting"
    if record and record.status == "finished":
        status = "finished"
    elif path.exists() and is_claimed(path):
        status = "running"
    elif attempt and attempt.failed:
        status = "failed"
    seconds = sum(e.train_seconds + e.test_seconds for e in epochs)
    return State(status=status, epochs=len(epochs), seconds=seconds, attempt=attempt)


def read_attempt(path: Path) -> Attempt | None:
    """Return a run's last attempt, or None if there was none or its file is not whole."""
    try:
        content = json.loads((path / ATTEMPT).read_text())
        del content["schema"]
        return Attempt(**content | {"last_lines": tuple(content["last_lines"])})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def other_threads(runs: Sequence[PlannedRun], folder: Path, threads: int) -> str:
    """Return the other numbers of threads that a study's finished runs had, in words."""
    attempts = [
        read_attempt(folder / run.folder) for run in runs if run.config and not run.config.threads
    ]
    had = {a.threads for a in attempts if a is not None and a.exit_status == 0}
    return " and ".join(map(str, sorted(had - {threads})))


def write_attempt(path: Path, attempt: Attempt) -> None:
    """Note an attempt in a run's folder.

    Raises:
        UserError: If the folder cannot be written.
    """
    content = {"schema": "training-parity/attempt/1"} | asdict(attempt)
    text = json.dumps(content, indent=1) + "\n"
    with writing(path / ATTEMPT):
        write_atomically(path / ATTEMPT, lambda file: file.write(text.encode()))


def new_attempt(threads: int, record: RunRecord | None) -> Attempt:
    """Return an attempt that begins now, on this machine."""
    return Attempt(
        began=time.time(),
        host=socket.gethostname(),
        threads=threads,
        first_epoch=1 + (len(record.epochs) if record else 0),
    )


def last_lines(log: str) -> tuple[str, ...]:
    """Return the lines that show how a log ended."""
    return tuple(line.rstrip() for line in log.splitlines() if line.strip())[-TAIL:]


def claim(path: Path) -> FileLock | None:
    """Return the held claim on a run, for the caller to release, or None if another has it.

    Raises:
        UserError: If the folder cannot be made or written.
    """
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path / ".claim", is_singleton=False)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            return None
        return lock


def is_claimed(path: Path) -> bool:
    """Return whether a study is at a run. For an instant this holds the claim itself."""
    if not (path / ".claim").exists():
        return False
    try:
        with FileLock(path / ".claim", is_singleton=False).acquire(blocking=False):
            return False
    except (Timeout, PermissionError):
        return True
