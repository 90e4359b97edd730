"""The article's own way to its batches: torchvision, a DataLoader and PyTorch's generators.

Here the number of workers decides which random numbers an image meets: alone, crops and flips come
from the generator that also draws dropout; worker processes have generators of their own.

Source: the article's notebooks (RandomCrop(32, padding=4), RandomHorizontalFlip, ToTensor,
Normalize; DataLoader with shuffle; torch.manual_seed before the model is made). Images stand in
canonical order and dropout is drawn on the CPU, so its streams are of this kind, not the same ones.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader

from parity.architecture import DROPOUT_RATE, NUM_FEATURES
from parity.data.dataset import Dataset
from parity.data.pipeline import Batch
from parity.streams import PADDING
from torch_impl.model import SimpleCNN
from torch_impl.weights import to_canonical


class _Images(torch.utils.data.Dataset[Any]):
    """Training images, cropped, flipped and normalised by torchvision."""

    def __init__(self, dataset: Dataset) -> None:
        from torchvision import transforms  # heavy, and of this pipeline alone

        self._dataset = dataset
        self._transform = transforms.Compose(
            [
                transforms.ToPILImage(),
                transforms.RandomCrop(32, padding=PADDING),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(dataset.mean, dataset.std),
            ]
        )

    def __len__(self) -> int:
        return len(self._dataset.train_labels)

    def __getitem__(self, index: int) -> Any:
        label = int(self._dataset.train_labels[index])
        return self._transform(self._dataset.train_images[index]), label


class ArticlePipeline:
    """Batches from PyTorch's generators. See parity.data.pipeline.Pipeline."""

    def __init__(self, seed: int) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._initial = to_canonical(SimpleCNN(torch.float32).state_dict())
            self._generator = torch.get_rng_state()

    def initial_weights(self) -> dict[str, np.ndarray]:
        """Return PyTorch's own initial weights by canonical name."""
        return self._initial

    def fingerprint(self, dataset: Dataset, *, batch_size: int, workers: int) -> str:
        """Return the SHA-256 of what the first step really gets."""
        before = self._generator
        batches = self.train_batches(dataset, epoch=1, batch_size=batch_size, workers=workers)
        first = next(batches)
        batches.close()
        self._generator = before
        digest = hashlib.sha256(b"article pipeline")
        for array in first:
            assert array is not None
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def train_batches(self, dataset: Dataset, *, epoch: int, batch_size: int, workers: int) -> Any:
        """Yield an epoch's training batches; the generators go on from epoch to epoch."""
        loader = DataLoader(_Images(dataset), batch_size, shuffle=True, num_workers=workers)
        return self._draw(loader)

    def _draw(self, loader: DataLoader[Any]) -> Iterator[Batch]:
        torch.set_rng_state(self._generator)
        for images, labels in loader:
            ones = torch.ones(len(labels), NUM_FEATURES)
            yield Batch(
                images=images.permute(0, 2, 3, 1).contiguous().numpy(),
                labels=labels.numpy().astype(np.int32),
                keep=(F.dropout(ones, DROPOUT_RATE) != 0).numpy(),
            )
        self._generator = torch.get_rng_state()
