"""Several runs of one configuration, each with a seed of its own, as one program: jax.vmap."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_impl.resident import Images
from jax_impl.trainer import Trainer
from parity.config import TrainConfig
from parity.data.dataset import Dataset
from parity.data.draws import Draws
from parity.platforms import Platform
from parity.trainer import Output


def stack(trees: Sequence[Any]) -> Any:
    """Return one pytree whose arrays have one axis more, the first: the replicas."""
    return jax.tree.map(lambda *arrays: jnp.stack(arrays), *trees)


class Replicas(Trainer):
    """Trainers in one program; as a Trainer itself it is one of them alone, by the step.

    See parity.replicas.Replicas.
    """

    def __init__(self, config: TrainConfig, platform: Platform, threads: int) -> None:
        super().__init__(config, platform, threads)
        self._states: Any = None
        self._nums_steps = np.zeros(0, np.int64)

    def environment(self) -> dict[str, Any]:
        """Return what the framework says of itself and its device, and how many replicas it is."""
        return super().environment() | {"replicas": self._config.replicas}

    def place_all(self, datasets: Sequence[Dataset]) -> None:
        """Lay each replica's images on the device: once, where all have the same."""
        # A subset is the seed's own.
        shared = self._config.train_size is None and self._config.test_size is None
        splits: list[tuple[Images, Images]] = []
        for dataset in datasets[:1] if shared else datasets:
            self.place(dataset)
            assert self._train_images is not None
            assert self._test_images is not None
            splits.append((self._train_images, self._test_images))
        self._images: tuple[Images, Images] = splits[0] if shared else stack(splits)
        axis = None if shared else 0
        over = partial(jax.vmap, axis_size=len(datasets))
        self._update_replicas = jax.jit(over(self._update_steps, in_axes=(0, axis, 0)))
        self._evaluate_replicas = jax.jit(over(self._evaluate_steps, in_axes=(0, axis, None)))

    def load_all(self, states: Sequence[Mapping[str, np.ndarray]]) -> None:
        """Take over each replica's weights, buffers and optimizer state by canonical name."""
        trees, nums_steps = [], []
        for state in states:
            self.load(state)
            trees.append(self._state)
            nums_steps.append(self._num_steps)
        self._states, self._nums_steps = stack(trees), np.array(nums_steps)

    def states(self) -> list[dict[str, np.ndarray]]:
        """Return copies of each replica's state by canonical name."""
        host = jax.device_get(self._states)
        states = []
        for replica, num_steps in enumerate(self._nums_steps):
            self._state = jax.tree.map(lambda array, r=replica: array[r], host)
            self._num_steps = int(num_steps)
            states.append(self.state())
        return states

    def train_all(self, draws: Sequence[Draws]) -> list[Output]:
        """Do each replica's updates; a loss that is NaN or infinite stops none of them."""
        together = jax.tree.map(lambda *arrays: np.stack(arrays), *draws)
        self._states, losses, logits, skipped = self._update_replicas(
            self._states, self._images[0], together
        )
        self._nums_steps = self._nums_steps + len(draws[0].chosen) - np.asarray(skipped)
        return list(map(Output, np.asarray(losses), np.asarray(logits)))

    def test_all(self, draws: Draws) -> list[Output]:
        """Return each replica's loss and logits with running statistics and without dropout."""
        losses, logits = self._evaluate_replicas(self._states, self._images[1], draws)
        return list(map(Output, np.asarray(losses), np.asarray(logits)))
