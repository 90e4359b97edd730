"""Small CIFAR-10 sets in the on-disk format of each source."""

import hashlib
import io
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from parity.data.cifar10 import BINARY_FOLDER, TEST_FILE, TRAIN_FILES
from parity.data.dataset import Split

RECORDS_PER_FILE = 4


@pytest.fixture
def records_per_file() -> int:
    return RECORDS_PER_FILE


@pytest.fixture
def splits() -> tuple[Split, Split]:
    """A training split of 20 images and a test split of 4, of random pixels."""
    random = np.random.default_rng(0)

    def split(num_images: int) -> Split:
        images = random.integers(0, 256, (num_images, 32, 32, 3), np.uint8)
        return Split(images, random.integers(0, 10, num_images, np.uint8))

    return split(5 * RECORDS_PER_FILE), split(RECORDS_PER_FILE)


@pytest.fixture
def shuffled():
    """Return a split in another order, one for each seed."""

    def shuffle(split: Split, seed: int) -> Split:
        order = np.random.default_rng(seed).permutation(len(split.labels))
        return Split(split.images[order], split.labels[order])

    return shuffle


@pytest.fixture
def write_binary():
    """Write the official binary version into a folder."""

    def write(folder: Path, train: Split, test: Split) -> Path:
        files = folder / BINARY_FOLDER
        files.mkdir(parents=True)
        names = (*TRAIN_FILES, TEST_FILE)
        for name, part in zip(names, (*_fifths(train), test), strict=True):
            records = np.concatenate([part.labels[:, None], _planes(part)], axis=1)
            (files / name).write_bytes(records.tobytes())
        return files

    return write


@pytest.fixture
def write_torchvision(monkeypatch):
    """Write the python version into a folder, and have torchvision take its MD5s for official."""

    def write(folder: Path, train: Split, test: Split) -> Path:
        from torchvision.datasets import CIFAR10

        files = folder / CIFAR10.base_folder
        files.mkdir(parents=True)

        def dump(name: str, content: object) -> list[str]:
            pickled = pickle.dumps(content, protocol=2)
            (files / name).write_bytes(pickled)
            return [name, hashlib.md5(pickled).hexdigest()]

        def batch(part: Split) -> dict[str, object]:
            return {"data": _planes(part), "labels": part.labels.tolist()}

        names = [name for name, _ in CIFAR10.train_list]
        train_list = [dump(*pair) for pair in zip(names, map(batch, _fifths(train)), strict=True)]
        _, meta_md5 = dump("batches.meta", {"label_names": list("abcdefghij")})
        monkeypatch.setattr(CIFAR10, "train_list", train_list)
        monkeypatch.setattr(CIFAR10, "test_list", [dump("test_batch", batch(test))])
        monkeypatch.setattr(CIFAR10, "meta", CIFAR10.meta | {"md5": meta_md5})
        return files

    return write


@pytest.fixture
def write_tfds():
    """Write array_record files into a folder as tfds prepares them, but without TensorFlow."""

    def write(folder: Path, train: Split, test: Split) -> Path:
        import tensorflow_datasets as tfds

        # The name belongs to tfds's own builder, which is the one that reads.
        class Cifar10(tfds.core.GeneratorBasedBuilder, skip_registration=True):
            VERSION = tfds.core.Version("3.0.2")
            code_path = None  # no list of checksums lies beside this class

            def _info(self):
                features = tfds.features.FeaturesDict(
                    {
                        "id": tfds.features.Text(),
                        "image": tfds.features.Image(shape=(32, 32, 3)),
                        "label": tfds.features.ClassLabel(num_classes=10),
                    }
                )
                return tfds.core.DatasetInfo(builder=self, features=features)

            def _split_generators(self, dl_manager):
                return {
                    "train": self._generate_examples(train),
                    "test": self._generate_examples(test),
                }

            def _generate_examples(self, split):
                for index, (image, label) in enumerate(zip(*split, strict=True)):
                    # TensorFlow would encode an array; PNG bytes are taken as they are.
                    png = io.BytesIO()
                    Image.fromarray(image).save(png, "PNG")
                    png.seek(0)
                    yield index, {"id": str(index), "image": png, "label": int(label)}

        builder = Cifar10(data_dir=folder, file_format="array_record")
        builder.download_and_prepare()
        return Path(builder.data_path)

    return write


def _fifths(split: Split) -> list[Split]:
    parts = (np.split(array, 5) for array in split)
    return [Split(*pair) for pair in zip(*parts, strict=True)]


def _planes(split: Split) -> np.ndarray:
    return split.images.transpose(0, 3, 1, 2).reshape(len(split.labels), -1)
