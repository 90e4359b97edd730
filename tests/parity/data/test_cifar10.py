import numpy as np
import pytest

from parity.data import cifar10, library
from parity.data.dataset import fingerprint
from parity.errors import UserError


def assert_refused(folder, records_per_file, message):
    with pytest.raises(UserError, match=message):
        cifar10.read_binary(folder, records_per_file=records_per_file)


@pytest.fixture
def files(tmp_path, splits, write_binary):
    return write_binary(tmp_path, *splits)


@pytest.mark.parametrize("given", ["cifar-10-batches-bin", "."])
def test_binary_is_read_from_its_folder_or_the_one_above(
    tmp_path, splits, files, records_per_file, given
):
    read = cifar10.read_binary(tmp_path / given, records_per_file=records_per_file)
    for part, expected in zip(read, splits, strict=True):
        np.testing.assert_array_equal(part.images, expected.images)
        np.testing.assert_array_equal(part.labels, expected.labels)


def test_binary_record_is_a_label_then_red_green_and_blue_rows_first(tmp_path):
    for name in (*cifar10.TRAIN_FILES, cifar10.TEST_FILE):
        record = np.zeros(3073, np.uint8)
        record[0] = 3
        record[1 + 2] = 10  # red, row 0, column 2
        record[1 + 1024 + 32] = 20  # green, row 1, column 0
        record[1 + 2 * 1024 + 1023] = 30  # blue, the last
        record.tofile(tmp_path / name)
    train, test = cifar10.read_binary(tmp_path, records_per_file=1)
    assert train.images.shape == (5, 32, 32, 3)
    assert test.labels.tolist() == [3]
    image = test.images[0]
    assert image[0, 2].tolist() == [10, 0, 0]
    assert image[1, 0].tolist() == [0, 20, 0]
    assert image[31, 31].tolist() == [0, 0, 30]
    assert image.sum() == 60


def test_binary_files_elsewhere_lead_to_the_ways_to_get_them(tmp_path):
    assert_refused(tmp_path / "nowhere", 4, r"(?s)holds no CIFAR-10.*--data-source binary +needs")


@pytest.mark.parametrize("name", ["data_batch_1.bin", "data_batch_4.bin", "test_batch.bin"])
class TestNamesTheFile:
    def test_that_is_missing(self, files, records_per_file, name):
        (files / name).unlink()
        assert_refused(files, records_per_file, rf"{name} cannot be read: No such file.*Unpack")

    @pytest.mark.parametrize("num_bytes", [-4 * 3073, -3073, -1, 1, 3073])
    def test_that_is_too_short_or_too_long(self, files, records_per_file, name, num_bytes):
        content = (files / name).read_bytes() + b"\1" * 3073
        (files / name).write_bytes(content[: len(content) - 3073 + num_bytes])
        assert_refused(files, records_per_file, rf"{name} has .* truncated .*Unpack")

    def test_that_has_an_impossible_label(self, files, records_per_file, name):
        content = bytearray((files / name).read_bytes())
        content[2 * 3073] = 10
        (files / name).write_bytes(content)
        assert_refused(files, records_per_file, rf"{name} is altered: .* record 2 .* is 10")

    def test_that_has_a_hole(self, files, records_per_file, name):
        content = (files / name).read_bytes()
        (files / name).write_bytes(bytes(len(content)))
        assert_refused(files, records_per_file, rf"{name} is damaged: 4 of its images")


def test_a_few_blank_images_are_not_a_hole(files, records_per_file):
    content = (files / "test_batch.bin").read_bytes()
    (files / "test_batch.bin").write_bytes(bytes(3 * 3073) + content[3 * 3073 :])
    _, test = cifar10.read_binary(files, records_per_file=records_per_file)
    assert not test.images[:3].any()


def test_sets_of_another_size_are_refused(tmp_path, splits, monkeypatch):
    monkeypatch.setattr(library, "read", lambda *_, **__: splits)
    with pytest.raises(UserError, match=r"20 training and 4 test images, .* 50,000 and 10,000"):
        cifar10.load("tfds", tmp_path, show_progress=False)


def test_three_sources_in_different_orders_yield_the_same_bits(
    tmp_path,
    splits,
    shuffled,
    write_binary,
    write_torchvision,
    write_tfds,
    records_per_file,
    monkeypatch,
):
    train, test = splits
    write_binary(tmp_path, train, test)
    write_torchvision(tmp_path, shuffled(train, 1), shuffled(test, 2))
    write_tfds(tmp_path, shuffled(train, 3), shuffled(test, 4))
    readers = {"tfds": library.read_tfds, "torchvision": library.read_torchvision}
    # In this process, where torchvision takes the small files for the official ones.
    monkeypatch.setattr(library, "read", lambda source, folder, **_: readers[source](folder))
    binary, torchvision, tfds = (
        cifar10.load(source, tmp_path, show_progress=False, records_per_file=records_per_file)
        for source in ("binary", "torchvision", "tfds")
    )
    assert fingerprint(binary) == fingerprint(torchvision) == fingerprint(tfds)
    for field in ("train_images", "train_labels", "test_images", "test_labels"):
        np.testing.assert_array_equal(getattr(binary, field), getattr(torchvision, field))
        np.testing.assert_array_equal(getattr(binary, field), getattr(tfds, field))
    assert (binary.source, torchvision.source, tfds.source) == ("binary", "torchvision", "tfds")
