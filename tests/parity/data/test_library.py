import functools
import http.server
import importlib.util
import os
import pickle
import socket
import subprocess
import sys
import tarfile
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from parity.data import library
from parity.data.dataset import in_canonical_order
from parity.errors import RunFailed, UserError

ALL_WAYS = "(?s)--data-source tfds.*--data-source torchvision.*--data-source binary"


@pytest.fixture(autouse=True)
def _same_socket_timeout():
    yield
    socket.setdefaulttimeout(None)


def assert_same_images(read, splits):
    for part, expected in zip(map(in_canonical_order, read), splits, strict=True):
        expected = in_canonical_order(expected)
        np.testing.assert_array_equal(part.images, expected.images)
        np.testing.assert_array_equal(part.labels, expected.labels)


class TestTfds:
    def test_is_read_by_a_process_of_its_own(self, tmp_path, splits, write_tfds):
        write_tfds(tmp_path, *splits)
        assert_same_images(library.read("tfds", tmp_path, show_progress=False), splits)

    def test_leaves_no_library_in_the_training_process(self, tmp_path, splits, write_tfds):
        write_tfds(tmp_path, *splits)
        probe = (
            "import os, pathlib, sys; from parity.data import library; before = dict(os.environ); "
            "library.read('tfds', pathlib.Path(sys.argv[1]), show_progress=False); "
            "assert dict(os.environ) == before; print(*sys.modules)"
        )
        command = [sys.executable, "-c", probe, tmp_path]
        loaded = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()
        assert "parity.data.library" in loaded
        assert not {"tensorflow_datasets", "tensorflow", "jax", "torch"} & set(loaded)

    @pytest.mark.parametrize("split", ["train", "test"])
    @pytest.mark.parametrize("damage", ["truncated", "altered", "missing"])
    def test_damaged_file_is_named(self, tmp_path, splits, write_tfds, split, damage):
        name = f"cifar10-{split}.array_record-00000-of-00001"
        file = write_tfds(tmp_path, *splits) / name
        content = bytearray(file.read_bytes())
        if damage == "truncated":
            file.write_bytes(content[:-100])
        elif damage == "altered":
            content[2000] ^= 1
            file.write_bytes(content)
        else:
            file.unlink()
        with pytest.raises(UserError, match=f"(?s){name} in .* is truncated or altered.*Delete"):
            library.read_tfds(tmp_path)

    def test_other_formats_are_refused(self, tmp_path, splits, write_tfds):
        info = write_tfds(tmp_path, *splits) / "dataset_info.json"
        info.write_text(info.read_text().replace("array_record", "tfrecord"))
        with pytest.raises(UserError, match=r"holds no array_record files.*Choose another folder"):
            library.read_tfds(tmp_path)

    def test_preparing_without_tensorflow_says_what_to_install(self, tmp_path, monkeypatch):
        find_spec = importlib.util.find_spec
        monkeypatch.setattr(
            importlib.util,
            "find_spec",
            lambda name: None if name == "tensorflow" else find_spec(name),
        )
        monkeypatch.setattr(library, "require_network", lambda *_: pytest.fail("asked too early"))
        with pytest.raises(UserError, match=r"needs tensorflow.*'\.\[tfds\]'"):
            library.read_tfds(tmp_path / "empty")
        with pytest.raises(UserError, match=ALL_WAYS):
            library.read_tfds(tmp_path / "empty")

    def test_a_crash_fails_with_its_message_and_without_a_traceback(
        self, tmp_path, splits, write_tfds
    ):
        (write_tfds(tmp_path, *splits) / "dataset_info.json").write_text("{")
        with pytest.raises(RunFailed, match=r"through tfds .* status 1: ParseError") as caught:
            library.read("tfds", tmp_path, show_progress=False)
        assert "Traceback" not in str(caught.value)


def test_a_killed_process_fails_with_its_last_lines(tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho one >&2\necho out of memory >&2\nkill -9 $$\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(RunFailed, match="status -9: one / out of memory"):
        library.read("tfds", tmp_path, show_progress=False)


class TestTorchvision:
    def test_is_read(self, tmp_path, splits, write_torchvision):
        write_torchvision(tmp_path, *splits)
        assert_same_images(library.read_torchvision(tmp_path), splits)

    def test_is_read_by_a_process_of_its_own(self, tmp_path, splits, write_torchvision):
        # These small files are not the official ones, and that process knows.
        write_torchvision(tmp_path, *splits)
        with pytest.raises(UserError, match=r"data_batch_1, .*, batches\.meta in .* is missing"):
            library.read("torchvision", tmp_path, show_progress=False)

    @pytest.mark.parametrize("name", ["data_batch_3", "test_batch", "batches.meta"])
    @pytest.mark.parametrize("damage", ["truncated", "altered", "missing"])
    def test_damaged_file_is_named(self, tmp_path, splits, write_torchvision, name, damage):
        file = write_torchvision(tmp_path, *splits) / name
        content = bytearray(file.read_bytes())
        if damage == "truncated":
            file.write_bytes(content[:-1])
        elif damage == "altered":
            content[len(content) // 2] ^= 1
            file.write_bytes(content)
        else:
            file.unlink()
        with pytest.raises(UserError, match=f"^{name} in .*altered.*Delete that folder"):
            library.read_torchvision(tmp_path)

    def test_a_foreign_pickle_is_never_loaded(self, tmp_path, splits, write_torchvision):
        class Attack:
            def __reduce__(self):
                return os.mkdir, (str(tmp_path / "attacked"),)

        attack = pickle.dumps(Attack())
        (write_torchvision(tmp_path, *splits) / "data_batch_1").write_bytes(attack)
        with pytest.raises(UserError, match=r"^data_batch_1 in"):
            library.read_torchvision(tmp_path)
        assert not (tmp_path / "attacked").exists()

    def test_without_torchvision_it_says_what_to_install(self, tmp_path, monkeypatch):
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(UserError, match=r"needs torchvision.*'\.\[torch\]'"):
            library.read_torchvision(tmp_path)


@pytest.fixture
def archive(tmp_path, splits, write_torchvision, monkeypatch):
    """The archive that torchvision downloads, served on loopback, and the requests for it."""
    from torchvision.datasets import CIFAR10
    from torchvision.datasets.utils import calculate_md5

    served = tmp_path / "served"
    files = write_torchvision(served, *splits)
    path = served / CIFAR10.filename
    with tarfile.open(path, "w:gz") as tar:
        tar.add(files, files.name)
    requests = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            requests.append(self.command)

    handler = functools.partial(Handler, directory=served)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/{path.name}"
        monkeypatch.setattr(CIFAR10, "url", url)
        monkeypatch.setattr(CIFAR10, "tgz_md5", calculate_md5(path))
        monkeypatch.setattr(library, "TORCHVISION_URL", url)
        yield path, requests
        server.shutdown()


class TestDownload:
    def test_is_made_once_by_runs_that_start_together(self, tmp_path, splits, archive):
        _, requests = archive
        with ThreadPoolExecutor(2) as runs:
            for read in runs.map(library.read_torchvision, [tmp_path / "data"] * 2):
                assert_same_images(read, splits)
        # torchvision itself asks twice, for redirections and for the content.
        assert requests.count("GET") == 2

    def test_that_broke_off_is_never_taken_for_whole(self, tmp_path, splits, archive):
        path, _ = archive
        whole = path.read_bytes()
        path.write_bytes(whole[:-1000])
        with pytest.raises(UserError, match=r"(?s)did not succeed.*Run again to start afresh"):
            library.read_torchvision(tmp_path / "data")
        path.write_bytes(whole)
        assert_same_images(library.read_torchvision(tmp_path / "data"), splits)

    def test_is_not_needed_where_the_archive_lies_already(self, tmp_path, splits, archive):
        path, requests = archive
        (tmp_path / "data").mkdir()
        path.rename(tmp_path / "data" / path.name)
        assert_same_images(library.read_torchvision(tmp_path / "data"), splits)
        assert requests == []


@pytest.fixture
def closed_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return port


@pytest.fixture
def silent_port():
    """A port that takes connections and never answers."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        yield silent.getsockname()[1]


class TestWithoutNetwork:
    def test_torchvision_names_the_three_ways(self, tmp_path, closed_port, monkeypatch):
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{closed_port}")
        with pytest.raises(UserError, match=r"(?s)python\.tar\.gz cannot be .*refused") as caught:
            library.read("torchvision", tmp_path / "data", show_progress=False)
        caught.match(ALL_WAYS)
        assert not (tmp_path / "data").exists()

    def test_tfds_names_the_three_ways(self, tmp_path, closed_port, monkeypatch):
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{closed_port}")
        monkeypatch.setattr(urllib.request, "_opener", None)  # keeps the proxies of its first use
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)
        with pytest.raises(UserError, match=r"(?s)binary\.tar\.gz cannot be .*refused") as caught:
            library.read_tfds(tmp_path / "data")
        caught.match(ALL_WAYS)

    def test_the_message_comes_within_ten_seconds(self, tmp_path, silent_port, monkeypatch):
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{silent_port}")
        start = time.monotonic()
        with pytest.raises(UserError, match=ALL_WAYS):
            library.read("torchvision", tmp_path / "data", show_progress=False)
        assert time.monotonic() - start < 10

    def test_a_silent_server_is_given_up(self, tmp_path, silent_port):
        url = f"http://127.0.0.1:{silent_port}/"
        with pytest.raises(UserError, match=r"cannot be reached: (timed out|no answer)"):
            library.require_network(url, tmp_path, timeout_s=0.2)

    def test_a_name_server_that_heeds_no_timeout_is_given_up(self, tmp_path, monkeypatch):
        released = threading.Event()
        monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: released.wait(5))
        with pytest.raises(UserError, match=r"no answer within 0\.2 s"):
            library.require_network("http://unknown.invalid/", tmp_path, timeout_s=0.2)
        released.set()
