import resource
import subprocess
import sys

import pytest

from parity.files import write_atomically


def test_the_new_content_replaces_the_old(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    write_atomically(path, lambda file: file.write(b"new"))
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_old_content_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def fail(file):
        file.write(b"half")
        raise RuntimeError("planted")

    with pytest.raises(RuntimeError, match="planted"):
        write_atomically(path, fail)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


FULL_DISK = """
import resource, sys
from pathlib import Path
from parity.files import write_atomically
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_atomically(Path(sys.argv[1]), lambda file: file.write(bytes(2000)))
except OSError:
    print("refused")
"""


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="needs RLIMIT_FSIZE")
def test_a_file_that_does_not_fit_leaves_the_old_one(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    child = [sys.executable, "-c", FULL_DISK, str(path)]
    assert subprocess.run(child, capture_output=True, text=True).stdout == "refused\n"
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
