"""Runs as processes of this machine, each with its own log."""

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from parity.command import writing
from parity.errors import UserError
from parity.flags import flags
from parity.platforms import Framework, available_threads
from parity.study.folder import LOG, last_lines
from parity.study.planning import PlannedRun
from parity.study.scheduling import Ended

MODULES: dict[Framework, str] = {"jax": "jax_impl.train", "torch": "torch_impl.train"}
"""The train commands."""


def arguments(
    run: PlannedRun, *, out: Path, resume: bool, threads: int, data_dir: Path | None
) -> list[str]:
    """Return the arguments of a run's train command."""
    assert run.config is not None
    values = {"device": run.place.device, "threads": threads, "data_dir": data_dir}
    if resume:
        return flags(values | {"resume": out})
    # Everything said: the log alone repeats the run.
    return flags(run.config.to_json() | values | {"out": out})


class Process:
    """One training process."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._log = log
        self._began = time.monotonic()
        with writing(log), log.open("a") as file:
            print("$", *command, file=file, flush=True)
            self._size = file.tell()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,  # the leash
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that Ctrl-C reaches the study alone
            )

    def poll(self) -> Ended | None:
        """See scheduling.Job."""
        status = self._process.poll()
        if status is None:
            return None
        self._close()
        with self._log.open("rb") as file:
            file.seek(self._size)
            text = file.read().decode(errors="replace")
        return Ended(status, time.monotonic() - self._began, last_lines(text))

    def kill(self) -> None:
        """See scheduling.Job."""
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()


class Local:
    """Starts runs on this machine."""

    def __init__(
        self, *, data_dir: Path | None, jobs: int, modules: Mapping[Framework, str] = MODULES
    ) -> None:
        cores = available_threads()
        if not 1 <= jobs <= cores:
            raise UserError(
                f"--jobs is {jobs}, but must be from 1 to {cores}, the cores of this process."
            )
        self.jobs = jobs
        self.threads = cores // jobs
        self._data_dir = data_dir
        self._modules = modules

    def has_room(self, run: PlannedRun, going: Sequence[PlannedRun]) -> bool:
        """See scheduling.Backend. A run has its accelerator for itself; runs share a CPU."""
        device = run.place.device
        taken = not device.startswith("cpu") and any(o.place.device == device for o in going)
        return len(going) < self.jobs and not taken

    def start(self, run: PlannedRun, folder: Path, *, resume: bool, threads: int) -> Process:
        """See scheduling.Backend."""
        module = self._modules[run.framework]
        command = [sys.executable, "-m", "parity.study.leash", module]
        command += arguments(
            run, out=folder, resume=resume, threads=threads, data_dir=self._data_dir
        )
        return Process(command, folder / LOG)

    def close(self) -> None:
        """See scheduling.Backend."""
