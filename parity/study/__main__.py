"""Studies: many runs by one design.

python -m parity.study plan|run|status|report WHAT ...
"""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import tyro
from tyro.extras import SubcommandApp

from parity.command import user_errors
from parity.config import DatasetName
from parity.errors import UserError
from parity.platforms import KINDS, Framework

if TYPE_CHECKING:
    from parity.study.folder import Study
    from parity.study.planning import PlannedRun
    from parity.study.scheduling import Outcome


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the user chooses where a design leaves a choice."""

    on: str | None = None
    """Your devices, separated by commas: cpu,cpu:avx2 or gpu:0; on Ray also gpu@T4. They take the
    places of the design's devices. Default: the design's own."""

    frameworks: str | None = None
    """torch, jax or torch,jax. Default: the design's."""

    dataset: DatasetName | None = None
    """In place of the design's, like the three below: a smaller study of the same form."""

    epochs: int | None = None
    """Passes over the training images."""

    train_size: int | None = None
    """Train on so many images."""

    test_size: int | None = None
    """Test on so many images."""

    data_dir: Path | None = None
    """Folder of CIFAR-10, on every machine."""

    backend: Literal["local", "ray"] = "local"
    """local: processes of this machine. ray: tasks of a Ray cluster."""


What = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="WHAT")]
Flat = Annotated[Options, tyro.conf.arg(name="")]


def study_of(what: str, options: Options) -> "Study":
    """Return the study that a command line names: a design's, or one that a folder holds.

    Raises:
        UserError: If there is no such design, or the options would change a begun study.
    """
    from parity.study import design, folder
    from parity.study.planning import Choices

    if (Path(what) / folder.STUDY).is_file():
        changed = replace(options, data_dir=None, backend="local")
        if changed != Options():
            raise UserError(
                f"{what} is a study that has begun, with choices of its own. Leave out all "
                "options but --jobs, --data-dir, --backend and --address."
            )
        begun = folder.read(Path(what))
        return replace(begun, data_dir=options.data_dir or begun.data_dir, backend=options.backend)
    names = ("dataset", "epochs", "train_size", "test_size")
    choices = Choices(
        frameworks=_frameworks(options.frameworks),
        on=_words("on", options.on),
        overrides={n: v for n in names if (v := getattr(options, n)) is not None},
    )
    return folder.Study(
        design=design.load(what),
        choices=choices,
        backend=options.backend,
        data_dir=options.data_dir and options.data_dir.resolve(),
    )


def _frameworks(text: str | None) -> tuple[Framework, ...] | None:
    names = _words("frameworks", text)
    for name in names or ():
        if name not in KINDS:
            raise UserError(f"--frameworks holds {name!r}. Choose from {','.join(KINDS)}.")
    return cast(tuple[Framework, ...] | None, names)


def _words(option: str, text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    words = tuple(word.strip() for word in text.split(","))
    if not all(words):
        raise UserError(f"--{option} {text!r} holds an empty name. Separate names by one comma.")
    return tuple(dict.fromkeys(words))


def plan(what: str, options: Options) -> None:
    """Print what a study would do."""
    from parity.console import console
    from parity.study.tables import plan_tables

    study = study_of(what, options)
    screen = console()
    for part in plan_tables(study, study.plan()):
        screen.print(part)


def run(
    what: str,
    options: Options,
    *,
    out: Path | None = None,
    jobs: int = 1,
    address: str | None = None,
    modules: Mapping[Framework, str] | None = None,
) -> int:
    """Bring a study to its end, and return the exit status.

    Args:
        what: A design's name or file, or the folder of a study.
        options: The user's choices.
        out: The study's folder.
        jobs: Runs at once.
        address: Of the Ray cluster.
        modules: Train commands in place of the real ones, for tests.
    """
    from parity.study import folder, local
    from parity.study.display import display
    from parity.study.scheduling import Schedule

    study = study_of(what, options)
    runs = study.plan()
    path = folder_of(what, study, out)
    num_runs = sum(r.config is not None for r in runs)
    if not num_runs:
        raise UserError(f"No run of {study.design.name} is applicable. `plan` says why.")
    commands = modules or local.MODULES
    if study.backend == "ray":
        from parity.study.cluster import Cluster

        backend = Cluster(address, data_dir=study.data_dir, jobs=jobs, modules=commands)
        for name, count in backend.missing(runs).items():
            print(f"note: no machine of the cluster has enough {name}; {count} runs wait for it.")
    elif address is not None:
        raise UserError("--address is that of a Ray cluster. Add --backend ray, or leave it out.")
    else:
        backend = local.Local(data_dir=study.data_dir, jobs=jobs, modules=commands)
    folder.begin(path, study)
    if other := folder.other_threads(runs, path, backend.threads):
        print(
            f"note: finished runs had {other} threads, these get {backend.threads}. In float32 and "
            "float64 that can change bits."
        )
    monitor = display(num_runs=num_runs)
    schedule = Schedule(runs, path, backend, monitor)
    try:
        outcomes = schedule.run()
    except KeyboardInterrupt:
        monitor.close()
        print(
            f"stopped; {monitor.num_finished} of {num_runs} runs are finished. "
            f"Go on with: python -m parity.study run {path}",
            file=sys.stderr,
        )
        return 130
    finally:
        monitor.close()
        backend.close()
    return report(outcomes, runs, path)


def folder_of(what: str, study: "Study", out: Path | None) -> Path:
    """Return the study's folder: the one named, the one given, or runs/ and the design's name."""
    from parity.study import folder

    if (Path(what) / folder.STUDY).is_file():
        if out is not None:
            raise UserError(f"{what} is the study's folder. Leave --out out.")
        return Path(what)
    return out or Path("runs") / study.design.name


def report(outcomes: Sequence["Outcome"], runs: Sequence["PlannedRun"], path: Path) -> int:
    """Print how a study ended, and return the exit status."""
    failed = [outcome for outcome in outcomes if not outcome.finished]
    left_out = sum(r.config is None for r in runs)
    print(
        f"{len(outcomes) - len(failed)} runs finished, {len(failed)} failed, "
        f"{left_out} not applicable."
    )
    for outcome in failed:
        print(f"  failed: {outcome.path}", file=sys.stderr)
    if failed:
        print("Put the cause right, then run again: finished runs are kept.", file=sys.stderr)
    print(f"compare: python -m parity.compare {path}")
    return 1 if failed else 0


def begun(what: str) -> Path:
    """Return the folder of a study: a recipe's in runs/, or the one that is named."""
    from parity.study import design

    return Path("runs") / what if what in design.recipes() else Path(what)


def status(what: str) -> None:
    """Print how far a study has come, also one that runs in another process."""
    from parity.console import console
    from parity.study import folder
    from parity.study.tables import status_tables

    path = begun(what)
    study = folder.read(path)
    runs = study.plan()
    states = [folder.state(r, path) for r in runs]
    screen = console()
    for part in status_tables(study, runs, states, now=time.time()):
        screen.print(part, soft_wrap=isinstance(part, str))


def main() -> None:
    """Run the command line."""
    app = SubcommandApp()

    @app.command(name="plan")
    def plan_command(what: What, options: Flat = Options()) -> None:
        """Print what a study would do, and what is not applicable and why.

        Args:
            what: article, ablation, smoke, a TOML file, or the folder of a study that has begun.
            options: Choices.
        """
        plan(what, options)

    @app.command(name="run")
    def run_command(
        what: What,
        options: Flat = Options(),
        *,
        out: Path | None = None,
        jobs: int = 1,
        address: str | None = None,
    ) -> None:
        """Do all runs that are not finished. After an interruption, say it again.

        Args:
            what: article, ablation, smoke, a TOML file, or the folder of a study that has begun.
            options: Choices.
            out: The study's folder. Default: runs/ and the design's name.
            jobs: Runs at once, among which the cores are shared out; on Ray, those of the smallest
                machine.
            address: Of the Ray cluster. Default: the one that this machine belongs to.
        """
        sys.exit(run(what, options, out=out, jobs=jobs, address=address))

    @app.command(name="status")
    def status_command(what: What) -> None:
        """Print how far a study has come, also one that runs in another process.

        Args:
            what: The study's folder, or article, ablation or smoke for the one in runs/.
        """
        status(what)

    @app.command(name="report")
    def report_command(what: What) -> None:
        """Write the report of a study's runs into its folder, as parity.report does.

        Args:
            what: The study's folder, or article, ablation or smoke for the one in runs/.
        """
        from parity.report.__main__ import report as write_report
        from parity.study import folder

        path = begun(what)
        folder.read(path)  # or it is no study
        write_report((path,), out=path / "report")

    with user_errors():
        app.cli(prog="python -m parity.study")


if __name__ == "__main__":
    main()
