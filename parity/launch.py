"""From a command line to a finished run: what both `train` commands do around their Trainer."""

import argparse
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import fields, replace
from functools import partial
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

from parity import arithmetic, commas, platforms, progress, replicas
from parity.arithmetic import preset_of
from parity.command import user_errors, writing
from parity.config import DataSource, TrainConfig
from parity.data.dataset import Dataset, subset
from parity.data.load import load
from parity.data.pipeline import OwnPipeline, Pipeline
from parity.errors import UserError
from parity.folders import begun_or_gone, default_folder, make_folder, refuse_used
from parity.loop import train
from parity.platforms import Framework, Kernels, Platform
from parity.runs import RunRecord, read_record, sole_writer, write_record
from parity.start import prepare
from parity.trainer import Trainer

MakeTrainer = Callable[[TrainConfig, Platform, int], Trainer]
"""Makes a Trainer; imports its framework only when called."""

MakePipeline = Callable[[int], Pipeline]
"""Makes a Pipeline of a seed; imports its framework only when called."""

MakeReplicas = Callable[[TrainConfig, Platform, int], replicas.Replicas]
"""Makes a Trainer of all replicas; imports its framework only when called."""

_MAY_CHANGE = {
    *("device", "threads", "workers", "engine", "replicas"),
    *("data_dir", "data_source", "out", "resume", "quiet"),
}
"""Fields of the configuration that a resumed run may change: where it computes, not what."""


def main(
    framework: Framework,
    make_trainer: MakeTrainer,
    *,
    default_source: DataSource,
    packages: tuple[str, ...],
    make_article_pipeline: MakePipeline | None = None,
    make_replicas: MakeReplicas | None = None,
) -> None:
    """Run `python -m jax_impl.train` or `python -m torch_impl.train`.

    Args:
        framework: Which one.
        make_trainer: Makes its Trainer.
        default_source: Its reader of CIFAR-10.
        packages: Distributions whose versions the record names.
        make_article_pipeline: Makes what `--pipeline article` asks for; None where there is none.
        make_replicas: Makes what `--replicas` asks for; None where there is none.
    """
    with user_errors():
        config, earlier = parse(framework, sys.argv[1:])
        if earlier is not None and earlier.status == "finished":
            if not config.quiet:
                print(f"{earlier.path} is finished: {len(earlier.epochs)} epochs. Nothing to do.")
            return
        platform = platforms.parse(config.device, framework)
        threads = platforms.threads(config.threads)
        make_pipeline = OwnPipeline
        if config.pipeline == "article":
            check_article_pipeline(framework, make_article_pipeline, earlier)
            make_pipeline = make_article_pipeline or OwnPipeline
        if config.replicas > 1:
            check_replicas(framework, make_replicas, platform, earlier)
        reason = arithmetic.why_not(framework, arithmetic.this_machines(platform), config.to_json())
        if reason is not None:
            raise UserError(reason)
        kernels = Kernels(config.deterministic, config.autotune, config.arithmetic == "tf32")
        platforms.enter(platform, threads, kernels)
        try:
            environment = platforms.fingerprint(platform, threads, packages)
        except PackageNotFoundError as error:
            raise UserError(
                f"{error.name} is not installed. Run `pip install '.[{framework}]'`."
            ) from None
        out = config.out or default_folder(framework, config, platform)
        if config.replicas > 1 and make_replicas is not None:
            config = replace(config, out=out)
            make = partial(make_replicas, config, platform, threads)
            run_replicas(make, config, environment, default_source)
            return
        with begun_or_gone(out), sole_writer(out):
            if earlier is None or earlier.path.resolve() != out.resolve():
                refuse_used(out)
            trainer = make_trainer(config, platform, threads)
            environment |= trainer.environment()
            pipeline = make_pipeline(config.seed)
            run(trainer, replace(config, out=out), earlier, environment, default_source, pipeline)


def parse(framework: Framework, arguments: list[str]) -> tuple[TrainConfig, RunRecord | None]:
    """Return the configuration, and the record of the run to go on with, if any.

    With --resume the recorded configuration takes the place of the defaults.

    Raises:
        UserError: If the run cannot be resumed, or a flag contradicts its configuration or itself.
    """
    import tyro

    commas.refuse_repeats("--exact-only", arguments)
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    finder.add_argument("--resume", type=Path)
    finder.add_argument("--preset")
    found = finder.parse_known_args(arguments)[0]
    resume = found.resume
    record = read_record(resume) if resume is not None else None
    defaults = (
        # tyro refuses an unknown preset, naming the known ones.
        TrainConfig(**preset_of({"preset": found.preset}))
        if record is None
        else replace(record.config, out=record.path, resume=resume)
    )
    config = tyro.cli(
        TrainConfig,
        args=arguments,
        default=defaults,
        registry=commas.registry(),
        prog=f"python -m {framework}_impl.train",
        description=f"Train SimpleCNN in {framework} and keep a record of the run.",
    )
    if record is None:
        return config, None
    for field in fields(TrainConfig):
        old, new = getattr(defaults, field.name), getattr(config, field.name)
        if field.name not in _MAY_CHANGE and old != new:
            if isinstance(old, tuple):
                old, new = commas.join(old), commas.join(new)
            raise UserError(
                f"--{field.name.replace('_', '-')} is {new}, but the run in {resume} has {old}. "
                "A resumed run keeps its configuration: leave the flag out, or start a new run."
            )
    return config, record


def check_article_pipeline(
    framework: Framework, make: MakePipeline | None, earlier: RunRecord | None
) -> None:
    """Refuse the article's pipeline where there is none, and in a run to be gone on with.

    Raises:
        UserError: In these cases.
    """
    if make is None:
        raise UserError(
            f"--pipeline article is PyTorch's DataLoader and generators, which {framework}_impl "
            "has not. Leave it out, or use torch_impl."
        )
    if earlier is not None:
        raise UserError(
            f"{earlier.path} has --pipeline article, which draws from PyTorch's generators, and no "
            "checkpoint keeps their state. Start a new run."
        )


def check_replicas(
    framework: Framework, make: MakeReplicas | None, platform: Platform, earlier: RunRecord | None
) -> None:
    """Refuse replicas where there are none, where they do not pay, and in a run to be gone on with.

    Raises:
        UserError: In these cases.
    """
    if make is None:
        raise UserError(
            f"--replicas is one program for many runs, by jax.vmap, which {framework}_impl has "
            "not. Leave it out, or use jax_impl."
        )
    if earlier is not None:
        raise UserError(
            f"--replicas begins runs, and {earlier.path} is one of its own, whether it was a "
            "replica or not. Leave --replicas out."
        )
    if platform.kind == "cpu":
        # Measured: 4 steps of 128 images, jax 0.10.2 on two cores of an AMD EPYC.
        raise UserError(
            "--replicas does not pay on a CPU, whose cores one run fills: four replicas in one "
            "program take 2.5 times as long as four runs one after the other. Leave it out, or use "
            "--device gpu or tpu; python -m parity.study runs many seeds here."
        )


def run(
    trainer: Trainer,
    config: TrainConfig,
    earlier: RunRecord | None,
    environment: Mapping[str, Any],
    default_source: DataSource,
    pipeline: Pipeline | None = None,
) -> None:
    """Begin or resume the run, train it to the end and show how it goes."""
    pipeline = pipeline or OwnPipeline(config.seed)
    dataset, record, state, note = prepare(config, earlier, environment, default_source, pipeline)
    with writing(record.path):
        write_record(record)
    trainer.load(state)
    monitor = progress.monitor(
        quiet=config.quiet,
        num_epochs=config.epochs,
        first_epoch=len(record.epochs) + 1,
        steps_per_epoch=-(-len(dataset.train_labels) // config.batch_size),
    )
    announce(monitor, config, environment, dataset, note)
    try:
        record = train(trainer, dataset, record, monitor, pipeline)
    except KeyboardInterrupt:
        monitor.close()
        print(f"stopped; go on with --resume {config.out}", file=sys.stderr)
        sys.exit(130)
    finally:
        monitor.close()
    monitor.print(f"weights sha256 {record.epochs[-1].weights_sha256}")
    monitor.print(f"record {config.out}")


def run_replicas(
    make: Callable[[], replicas.Replicas],
    config: TrainConfig,
    environment: Mapping[str, Any],
    default_source: DataSource,
) -> None:
    """Train a run of each seed from the first on, in one program, and show how it goes."""
    assert config.out is not None
    seeds = range(config.seed, config.seed + config.replicas)
    runs = [
        replace(config, seed=seed, out=config.out / f"replica-seed{seed}", replicas=1)
        for seed in seeds
    ]
    starts = []
    with ExitStack() as locks:
        with begun_or_gone(config.out):
            for own in runs:
                assert own.out is not None
                make_folder(own.out)
                locks.enter_context(sole_writer(own.out))
                refuse_used(own.out)
            trainer = make()
            environment = {**environment, **trainer.environment()}
            whole = load(replace(config, train_size=None, test_size=None), default_source)
            sizes = {"train_size": config.train_size, "test_size": config.test_size}
            for own in runs:
                dataset = subset(whole, seed=own.seed, **sizes)
                pipeline = OwnPipeline(own.seed)
                start = prepare(own, None, environment, default_source, pipeline, dataset)
                with writing(start.record.path):
                    write_record(start.record)
                starts.append(start)
        num_images = len(starts[0].dataset.train_labels)
        monitor = progress.monitor(
            quiet=config.quiet,
            num_epochs=config.epochs,
            first_epoch=1,
            steps_per_epoch=-(-num_images // config.batch_size),
        )
        announce(monitor, config, environment, starts[0].dataset, starts[0].note)
        monitor.print(f"{len(runs)} runs, seeds {seeds[0]} to {seeds[-1]}; figures are their means")
        try:
            replicas.train(trainer, starts, monitor)
        except KeyboardInterrupt:
            monitor.close()
            print(f"stopped; go on with each, --resume {runs[0].out} ...", file=sys.stderr)
            sys.exit(130)
        finally:
            monitor.close()
        monitor.print(f"records {config.out}")


def announce(
    monitor: progress.Monitor,
    config: TrainConfig,
    environment: Mapping[str, Any],
    dataset: Dataset,
    note: str | None,
) -> None:
    """Show what is trained, on what."""
    shortfall = arithmetic.shortfall(config.arithmetic, environment.get("product_bits"))
    for remark in filter(None, (shortfall, note)):
        monitor.print(f"note: {remark}")
    exact = f" (exact: {commas.join(config.exact_only)})" if config.exact_only else ""
    monitor.print(
        f"{environment['framework']} on {environment['platform']}, {config.arithmetic}{exact}, "
        f"{config.optimizer}: {len(dataset.train_labels):,} training and "
        f"{len(dataset.test_labels):,} test images of {dataset.name}"
    )
