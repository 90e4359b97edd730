"""What an implementation offers to the training loop: the Trainer protocol, NumPy in and out.

Batches come from the host, one a step; or the images lie on the device, which makes the batches of
a whole stretch of steps from what the streams drew for them. Both make the same batches, by bits.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from parity.data.dataset import Dataset
from parity.data.draws import Draws
from parity.data.pipeline import Batch


class Output(NamedTuple):
    """What one step or one evaluation yields, in the run's own precision.

    Those of a stretch have one axis more, the first: the steps.
    """

    loss: np.ndarray
    """Mean cross-entropy of the batch, in nats. Shape ()."""
    logits: np.ndarray
    """Shape (n, NUM_CLASSES)."""


class NonFinite(Exception):
    """A tensor holds NaN or infinity; `tensor` is its name, the first one in the forward pass."""

    def __init__(self, tensor: str) -> None:
        super().__init__(tensor)
        self.tensor = tensor


class Trainer(Protocol):
    """One SimpleCNN with its optimizer, on one device."""

    holds_images: bool
    """Whether the images are to lie on the device, which then takes steps by the stretch."""

    def environment(self) -> dict[str, Any]:
        """Return what the framework says of itself and its device, read back, as JSON values."""
        ...

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over weights, buffers and optimizer state by canonical name."""
        ...

    def state(self) -> dict[str, np.ndarray]:
        """Return copies of weights, buffers and optimizer state by canonical name."""
        ...

    def train_step(self, batch: Batch) -> Output:
        """Do one update and return the loss and the logits that it was made from.

        Raises:
            NonFinite: If the loss is NaN or infinite; the parameters were not updated.
        """
        ...

    def test_step(self, batch: Batch) -> Output:
        """Return loss and logits with running statistics and without dropout."""
        ...

    def place(self, dataset: Dataset) -> None:
        """Lay the images on the device, for `train_steps` and `test_steps`."""
        ...

    def train_steps(self, draws: Draws) -> Output:
        """Do an update for each step; a loss that is NaN or infinite stops none of them."""
        ...

    def test_steps(self, draws: Draws) -> Output:
        """Return loss and logits of each step with running statistics and without dropout."""
        ...
