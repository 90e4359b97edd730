"""Train SimpleCNN in JAX and Flax: `python -m jax_impl.train --help`."""

from parity import launch
from parity.config import TrainConfig
from parity.platforms import Platform
from parity.replicas import Replicas
from parity.trainer import Trainer

PACKAGES = ("jax", "jaxlib", "flax", "optax")


def make_trainer(config: TrainConfig, platform: Platform, threads: int) -> Trainer:
    """Return the Trainer; imports JAX, so the environment must be set before."""
    from jax_impl import compilation_cache, trainer

    compilation_cache.use(config)
    return trainer.Trainer(config, platform, threads)


def make_replicas(config: TrainConfig, platform: Platform, threads: int) -> Replicas:
    """Return the Trainer of all replicas; imports JAX, so the environment must be set before."""
    from jax_impl import compilation_cache, replicas

    compilation_cache.use(config)
    return replicas.Replicas(config, platform, threads)


if __name__ == "__main__":
    launch.main(
        "jax",
        make_trainer,
        default_source="tfds",
        packages=PACKAGES,
        make_replicas=make_replicas,
    )
