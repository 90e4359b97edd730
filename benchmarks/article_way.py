"""The article's way, as a user writes it by hand: the peer that torch_impl is measured against.

torchvision's transforms in a DataLoader, eager PyTorch, layers of torch.nn, and the loss fetched
after each step. None of it is the article's code.

Source: the article "Cross-GPU Reproducibility", its description of network, data and training.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torchvision import transforms

from parity.config import TrainConfig
from parity.data.load import load


class SimpleCNN(nn.Module):
    """3 x [conv, BatchNorm, ReLU, max-pool], dropout, two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(32)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(64)
        self.conv3 = nn.Conv2d(64, 128, 3, padding=1)
        self.bn3 = nn.BatchNorm2d(128)
        self.pool = nn.MaxPool2d(2, 2)
        self.dropout = nn.Dropout(0.5)
        self.fc1 = nn.Linear(128 * 4 * 4, 256)
        self.fc2 = nn.Linear(256, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (n, 10) of normalised images (n, 3, 32, 32)."""
        x = self.pool(torch.relu(self.bn1(self.conv1(x))))
        x = self.pool(torch.relu(self.bn2(self.conv2(x))))
        x = self.pool(torch.relu(self.bn3(self.conv3(x))))
        x = self.dropout(x.flatten(1))
        return self.fc2(torch.relu(self.fc1(x)))


class _Images(torch.utils.data.Dataset[Any]):
    """As torchvision.datasets.CIFAR10 gives them: a PIL image, then the transform."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, transform: Any) -> None:
        self._images, self._labels, self._transform = images, labels, transform

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> Any:
        image = Image.fromarray(self._images[index])
        return self._transform(image), int(self._labels[index])


class Subject:
    """The peer with its data. See benchmarks.worker.Subject."""

    def __init__(self, config: TrainConfig, framework: str) -> None:
        assert framework == "torch"
        assert config.threads is not None
        torch.set_num_threads(config.threads)
        torch.manual_seed(config.seed)
        dataset = load(config, "binary")
        as_tensor = [transforms.ToTensor(), transforms.Normalize(dataset.mean, dataset.std)]
        augment = [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()]
        train = _Images(
            dataset.train_images, dataset.train_labels, transforms.Compose(augment + as_tensor)
        )
        test = _Images(dataset.test_images, dataset.test_labels, transforms.Compose(as_tensor))
        self._train = DataLoader(train, config.batch_size, shuffle=True)
        self._test = DataLoader(test, config.batch_size)
        self._model = SimpleCNN()
        self._criterion = nn.CrossEntropyLoss()
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=config.lr)

    def environment(self) -> dict[str, Any]:
        """Return what is timed."""
        return {"framework": "torch", "threads": torch.get_num_threads()}

    def batches(self) -> Any:
        """Return an epoch's batches."""
        return iter(self._train)

    def train_step(self, batch: Any) -> None:
        """Do an update, and fetch the loss and the number of correct predictions."""
        images, labels = batch
        self._model.train()
        self._optimizer.zero_grad()
        outputs = self._model(images)
        loss = self._criterion(outputs, labels)
        loss.backward()
        self._optimizer.step()
        loss.item()
        outputs.max(1)[1].eq(labels).sum().item()

    def epochs(self, report: Callable[[float, float], None]) -> None:
        """Train and evaluate for ever."""
        while True:
            begin = time.perf_counter()
            for batch in self._train:
                self.train_step(batch)
            trained = time.perf_counter()
            self._evaluate()
            report(trained - begin, time.perf_counter() - trained)

    @torch.no_grad()
    def _evaluate(self) -> None:
        self._model.eval()
        for images, labels in self._test:
            outputs = self._model(images)
            self._criterion(outputs, labels).item()
            outputs.max(1)[1].eq(labels).sum().item()
