"""From a run's configuration to its data set: which one, through which reader, how much of it."""

import os
import sys
from pathlib import Path

from parity.config import DataSource, TrainConfig
from parity.data import cifar10, digits
from parity.data.dataset import Dataset, subset
from parity.errors import UserError


def load(config: TrainConfig, default_source: DataSource) -> Dataset:
    """Return the images that the run trains and tests on.

    Args:
        config: The run.
        default_source: Reader of CIFAR-10 where the configuration leaves it open.

    Raises:
        UserError: If the options contradict one another, or the data is not there or damaged.
        RunFailed: If a library fails in a way that is not the user's.
    """
    whole = _digits(config) if config.dataset == "digits" else _cifar10(config, default_source)
    return subset(whole, seed=config.seed, train_size=config.train_size, test_size=config.test_size)


def _digits(config: TrainConfig) -> Dataset:
    for option, value in (("--data-source", config.data_source), ("--data-dir", config.data_dir)):
        if value is not None:
            raise UserError(
                f"{option} is {value}, but --dataset digits comes with scikit-learn and has no "
                f"choice of it. Leave out {option}, or --dataset digits."
            )
    return digits.load()


def _cifar10(config: TrainConfig, default_source: DataSource) -> Dataset:
    source, folder = config.data_source, config.data_dir
    if folder is not None and folder.exists() and not folder.is_dir():
        raise UserError(f"--data-dir {folder} is a file. Give the folder that holds CIFAR-10.")
    if source is None:
        binary = folder is not None and cifar10.holds_binary(folder)
        source = "binary" if binary else default_source
    return cifar10.load(
        source,
        _default_folder(source) if folder is None else folder,
        show_progress=sys.stderr.isatty() and not config.quiet,
    )


def _default_folder(source: DataSource) -> Path:
    if source == "tfds":
        return Path(os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")).expanduser()
    return Path("data")
