"""The loop that brings a study to its end: what runs next, what became of it, what is left.

A run is done by who holds its claim. What another study holds is looked at again until it is
finished there, or free.
"""

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol

from filelock import FileLock

from parity.errors import UserError
from parity.runs import sole_writer
from parity.study import folder as folders
from parity.study.folder import Attempt
from parity.study.planning import PlannedRun

POLL_SECONDS = 0.1
LOOK_AGAIN_SECONDS = 1.0
"""Between two looks at the runs that another study holds."""


class Ended(NamedTuple):
    """How a job ended."""

    exit_status: int
    """Negative for a signal."""
    seconds: float
    last_lines: tuple[str, ...]
    """Of its log."""


class Job(Protocol):
    """A run on its way."""

    def poll(self) -> Ended | None:
        """Return how it ended, or None while it goes."""
        ...

    def kill(self) -> None:
        """End it now; the run is whole at any moment."""
        ...


class Backend(Protocol):
    """Where runs are done."""

    jobs: int
    """Runs at once."""
    threads: int
    """Of each run, unless its design sets them."""

    def has_room(self, run: PlannedRun, going: Sequence[PlannedRun]) -> bool:
        """Return whether a run can start beside those that are on their way."""
        ...

    def start(self, run: PlannedRun, folder: Path, *, resume: bool, threads: int) -> Job:
        """Start a run whose record and log are to come to be in a folder, which is there."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


class Display(Protocol):
    """Hears what happens."""

    def began(self, run: PlannedRun, attempt: Attempt) -> None:
        """Note that a run was started."""
        ...

    def ended(self, run: PlannedRun, outcome: "Outcome") -> None:
        """Note how a run ended, here or in another study."""
        ...

    def tick(self, *, running: int, seconds_left: float | None) -> None:
        """Note the time."""
        ...


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a run."""

    run: PlannedRun
    path: Path
    finished: bool
    last_lines: tuple[str, ...] = ()
    """Why, of a run that failed."""
    seconds: float | None = None
    """Of the last attempt; None where another study made it."""


@dataclass(frozen=True)
class _Going:
    job: Job
    lock: FileLock
    attempt: Attempt


class Estimate:
    """How long runs take, by what those of the same framework and device took."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[str, str], list[float]] = defaultdict(list)

    def learn(self, run: PlannedRun, attempt: Attempt | None) -> None:
        """Take a finished run into account, if it was done in one go."""
        if attempt and attempt.seconds is not None and attempt.first_epoch == 1:
            self._seconds[run.framework, str(run.place)].append(attempt.seconds)

    def seconds_left(
        self, waiting: Sequence[PlannedRun], going: Sequence[tuple[PlannedRun, float]], jobs: int
    ) -> float | None:
        """Return the seconds until all is done, or None before any run has been measured.

        Args:
            waiting: Runs that have not begun.
            going: Runs that have, each with the seconds that it has taken so far.
            jobs: Runs at once.
        """
        everything = [s for seconds in self._seconds.values() for s in seconds]
        if not everything:
            return None
        overall = sum(everything) / len(everything)

        def expected(run: PlannedRun) -> float:
            seconds = self._seconds.get((run.framework, str(run.place)))
            return sum(seconds) / len(seconds) if seconds else overall

        rest = [max(expected(run) - spent, 0.0) for run, spent in going]
        total = sum(rest) + sum(map(expected, waiting))
        return max(total / jobs, *rest, 0.0)


class Schedule:
    """One process's part in a study."""

    def __init__(
        self, runs: Sequence[PlannedRun], folder: Path, backend: Backend, display: Display
    ) -> None:
        self._folder = folder
        self._backend = backend
        self._display = display
        self._began = time.time()
        self._waiting = [run for run in runs if run.config is not None]
        self._going: dict[str, tuple[PlannedRun, _Going]] = {}
        self._elsewhere: dict[str, float] = {}
        """When to look again at the runs that other processes hold, by folder."""
        self._estimate = Estimate()
        self.outcomes: list[Outcome] = []

    def run(self) -> list[Outcome]:
        """Do every run that is not finished, and return what became of each.

        Whatever ends this, no job is left behind.
        """
        try:
            self._waiting = [run for run in self._waiting if not self._is_settled(run)]
            while self._waiting or self._going:
                self._collect()
                self._fill()
                self._show()
                time.sleep(POLL_SECONDS)
        finally:
            for _, going in self._going.values():
                going.job.kill()
                going.lock.release()
        return self.outcomes

    def _fill(self) -> None:
        for run in list(self._waiting):
            if not self._backend.has_room(run, [other for other, _ in self.going]):
                continue
            if time.monotonic() < self._elsewhere.get(run.folder, 0):
                continue
            if run.folder in self._elsewhere and self._is_settled(run):
                self._waiting.remove(run)
                continue
            try:
                started = self._start(run)
            except UserError as error:
                self._waiting.remove(run)
                self._settle(run, finished=False, last_lines=(str(error),))
                continue
            if started is None:
                self._elsewhere[run.folder] = time.monotonic() + LOOK_AGAIN_SECONDS
            else:
                self._waiting.remove(run)
                self._going[run.folder] = (run, started)
                self._display.began(run, started.attempt)

    @property
    def going(self) -> list[tuple[PlannedRun, _Going]]:
        """The runs on their way, in the order of their start."""
        return list(self._going.values())

    def _start(self, run: PlannedRun) -> _Going | None:
        """Start a run, or return None if another process is at it."""
        assert run.config is not None
        path = self._folder / run.folder
        lock = folders.claim(path)
        if lock is None:
            return None
        try:
            try:
                with sole_writer(path):
                    pass
            except UserError:
                lock.release()  # a training process that was started by hand
                return None
            record = folders.record_of(run, self._folder)
            if record and record.status == "finished":
                lock.release()  # by another study, since we looked
                return None
            threads = run.config.threads or self._backend.threads
            attempt = folders.new_attempt(threads, record)
            folders.write_attempt(path, attempt)
            job = self._backend.start(run, path, resume=record is not None, threads=threads)
        except BaseException:
            lock.release()
            raise
        return _Going(job, lock, attempt)

    def _collect(self) -> None:
        for key, (run, going) in list(self._going.items()):
            ended = going.job.poll()
            if ended is None:
                continue
            del self._going[key]
            attempt = replace(going.attempt, seconds=ended.seconds, exit_status=ended.exit_status)
            lines = ended.last_lines
            try:
                record = folders.record_of(run, self._folder)
                finished = record is not None and record.status == "finished"
                if not finished and ended.exit_status == 0:
                    lines = (*lines, "It ended well, but left no finished record.")
                if not finished:
                    attempt = replace(
                        attempt, exit_status=ended.exit_status or 1, last_lines=tuple(lines)
                    )
                folders.write_attempt(self._folder / run.folder, attempt)
            except UserError as error:
                finished, lines = False, (*lines, str(error))
            finally:
                going.lock.release()
            self._estimate.learn(run, attempt if finished else None)
            self._settle(run, finished=finished, last_lines=lines, seconds=ended.seconds)

    def _is_settled(self, run: PlannedRun) -> bool:
        """Note a run that is finished, or that another study has failed since this one began."""
        state = folders.state(run, self._folder)
        if state.status == "finished":
            self._estimate.learn(run, state.attempt)
            self._settle(run, finished=True)
            return True
        attempt = state.attempt
        elsewhere = run.folder in self._elsewhere
        if elsewhere and state.status == "failed" and attempt and attempt.began >= self._began:
            self._settle(run, finished=False, last_lines=attempt.last_lines)
            return True
        return False

    def _settle(
        self,
        run: PlannedRun,
        *,
        finished: bool,
        last_lines: tuple[str, ...] = (),
        seconds: float | None = None,
    ) -> None:
        path = self._folder / run.folder
        outcome = Outcome(
            run=run,
            path=path,
            finished=finished,
            last_lines=() if finished else last_lines,
            seconds=seconds,
        )
        self.outcomes.append(outcome)
        self._display.ended(run, outcome)

    def _show(self) -> None:
        now = time.time()
        going = [(run, now - g.attempt.began) for run, g in self.going]
        left = self._estimate.seconds_left(self._waiting, going, self._backend.jobs)
        self._display.tick(running=len(going), seconds_left=left)
