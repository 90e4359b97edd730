"""Runs as tasks of a Ray cluster, each on a machine that has the device it needs.

A task trains in a folder of its own machine and returns the files; a task whose worker is lost is
done again by Ray, from the beginning, elsewhere if need be.
"""

import logging
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from parity.command import writing
from parity.errors import UserError
from parity.files import write_atomically
from parity.platforms import Framework
from parity.runs import RECORD
from parity.study import local
from parity.study.folder import LOG
from parity.study.planning import PlannedRun
from parity.study.scheduling import POLL_SECONDS, Ended

RETRIES = 3
"""Times that a run is done again after its worker was lost; Ray's own default."""

LOOK_AGAIN_SECONDS = 5.0
"""Between two looks at what the cluster has: it may grow."""


class Home(NamedTuple):
    """What a task returns."""

    ended: Ended
    files: dict[str, bytes]
    """Content by name, the log among them."""


def train(run: PlannedRun, module: str, threads: int, data_dir: Path | None) -> Home:
    """Train on this machine, and return the run's files; what Ray's workers do."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [sys.executable, "-m", "parity.study.leash", module]
        command += local.arguments(
            run, out=folder, resume=False, threads=threads, data_dir=data_dir
        )
        process = local.Process(command, folder / LOG)
        while (ended := process.poll()) is None:
            time.sleep(POLL_SECONDS)
        files = {p.name: p.read_bytes() for p in folder.iterdir() if not p.name.startswith(".")}
    return Home(ended, files)


def demand(run: PlannedRun, threads: int) -> dict[str, float]:
    """Return the resources that a run asks of a machine, by Ray's names of them."""
    needs: dict[str, float] = {"CPU": threads}
    kind = run.place.device.partition(":")[0]
    if kind in ("gpu", "cuda"):
        needs["GPU"] = 1
    elif kind in ("tpu", "xla"):
        needs["TPU"] = 1
    if run.place.accelerator:
        # How Ray itself asks for a kind: a thousandth of what each such machine has one of.
        needs[f"accelerator_type:{run.place.accelerator}"] = 0.001
    return needs


def lacking(total: Mapping[str, float], needs: Mapping[str, float]) -> list[str]:
    """Return the resources of which there are too few."""
    return [name for name, amount in needs.items() if total.get(name, 0) < amount]


class Task:
    """One run on its way through the cluster."""

    def __init__(self, ray: Any, reference: Any, folder: Path) -> None:
        self._ray = ray
        self._reference = reference
        self._folder = folder
        self._began = time.monotonic()

    def poll(self) -> Ended | None:
        """See scheduling.Job."""
        ready, _ = self._ray.wait([self._reference], timeout=0)
        if not ready:
            return None
        try:
            home: Home = self._ray.get(self._reference)
        except self._ray.exceptions.RayError as error:
            lines = tuple(line for line in str(error).splitlines() if line.strip())
            return Ended(1, time.monotonic() - self._began, lines[-6:])
        try:
            bring_home(self._folder, home.files)
        except UserError as error:
            return home.ended._replace(exit_status=1, last_lines=(str(error),))
        return home.ended

    def kill(self) -> None:
        """See scheduling.Job."""
        self._ray.cancel(self._reference, force=True)


def bring_home(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a run's files into its folder, the record last.

    Raises:
        UserError: If they cannot be written.
    """
    with writing(folder):
        for name in sorted(files, key=lambda name: name == RECORD):
            if name == LOG:
                with (folder / LOG).open("ab") as log:
                    log.write(files[LOG])
            else:
                content = files[name]
                write_atomically(folder / name, lambda file, c=content: file.write(c))
        for old in folder.glob("checkpoint-*"):
            if old.name not in files:
                old.unlink()  # of an attempt before this one


def _refuse_deaf(address: str | None) -> None:
    """Try "host:port", where Ray itself would wait for minutes for an answer.

    Raises:
        OSError: If nobody answers.
    """
    host, _, port = (address or "").rpartition(":")
    if host and port.isdecimal() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=10).close()


class Cluster:
    """Starts runs on a Ray cluster."""

    def __init__(
        self,
        address: str | None,
        *,
        data_dir: Path | None,
        jobs: int,
        modules: Mapping[Framework, str] = local.MODULES,
    ) -> None:
        try:
            import ray  # pyright: ignore[reportMissingImports]
        except ModuleNotFoundError:
            raise UserError("Ray is not installed. Run `pip install '.[ray]'`.") from None
        try:
            _refuse_deaf(address)
            ray.init(address=address or "auto", log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, RuntimeError, ValueError) as error:
            raise UserError(
                f"There is no Ray cluster at {address or 'this machine'} ({error}). Start one by "
                "`ray start --head`, or give its --address."
            ) from None
        self._ray = ray
        self._data_dir = data_dir
        self._modules = modules
        self._looked = -LOOK_AGAIN_SECONDS
        self._total: Mapping[str, float] = {}
        cores = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
        smallest = min([n for n in cores if n] or [1])
        if jobs > smallest:
            raise UserError(
                f"--jobs is {jobs}, but the smallest machine of the cluster has {smallest} cores. "
                "Ask for no more."
            )
        self.threads = smallest // jobs
        self.jobs = max(sum(n // self.threads for n in cores), 1)
        self._task = ray.remote(train)

    def missing(self, runs: Sequence[PlannedRun]) -> Counter[str]:
        """Return the resources that no machine of the cluster has, with the runs that need them."""
        found: Counter[str] = Counter()
        for run in runs:
            if run.config is not None:
                found.update(lacking(self._resources(), demand(run, self.threads)))
        return found

    def has_room(self, run: PlannedRun, going: Sequence[PlannedRun]) -> bool:
        """See scheduling.Backend.

        What the cluster lacks altogether is asked for at once: it may grow by that.
        """
        total, needs = self._resources(), demand(run, self._threads_of(run))
        if lacking(total, needs):
            return True
        free = dict(total)
        for other in going:
            for name, amount in demand(other, self._threads_of(other)).items():
                free[name] = free.get(name, 0) - amount
        return not lacking(free, needs)

    def _threads_of(self, run: PlannedRun) -> int:
        return (run.config.threads if run.config else None) or self.threads

    def _resources(self) -> Mapping[str, float]:
        if time.monotonic() - self._looked >= LOOK_AGAIN_SECONDS:
            self._total = self._ray.cluster_resources()
            self._looked = time.monotonic()
        return self._total

    def start(self, run: PlannedRun, folder: Path, *, resume: bool, threads: int) -> Task:
        """See scheduling.Backend. A run is done from its beginning, whatever is there."""
        needs = demand(run, threads)
        cpus, gpus = needs.pop("CPU"), needs.pop("GPU", 0)
        task = self._task.options(
            num_cpus=cpus, num_gpus=gpus, resources=needs, max_retries=RETRIES, name=run.folder
        )
        module = self._modules[run.framework]
        return Task(self._ray, task.remote(run, module, threads, self._data_dir), folder)

    def close(self) -> None:
        """See scheduling.Backend."""
        self._ray.shutdown()
