"""Train SimpleCNN in PyTorch: `python -m torch_impl.train --help`."""

from parity import launch
from parity.config import TrainConfig
from parity.data.pipeline import Pipeline
from parity.platforms import Platform
from parity.trainer import Trainer

PACKAGES = ("torch", "torchvision")


def make_trainer(config: TrainConfig, platform: Platform, threads: int) -> Trainer:
    """Return the Trainer; imports PyTorch, so the environment must be set before."""
    from torch_impl import trainer

    return trainer.Trainer(config, platform, threads)


def make_article_pipeline(seed: int) -> Pipeline:
    """Return the article's pipeline; imports PyTorch, so the environment must be set before."""
    from torch_impl.article_pipeline import ArticlePipeline

    return ArticlePipeline(seed)


if __name__ == "__main__":
    launch.main(
        "torch",
        make_trainer,
        default_source="torchvision",
        packages=PACKAGES,
        make_article_pipeline=make_article_pipeline,
    )
