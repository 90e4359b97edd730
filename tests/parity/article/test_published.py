import json
import subprocess
import sys
from dataclasses import fields, replace
from importlib.resources import files as package_files

import numpy as np
import pytest

from parity.article import files, published
from parity.article.files import ArticleFile


def test_the_table_equals_the_files_to_the_bit(article_results):
    theirs = [files.read(path) for path in sorted(article_results.glob("*.json"))]
    ours = published.published()
    assert len(ours) == len(theirs) == 65
    for one, other in zip(ours, theirs, strict=True):
        assert one.path.name == other.path.name
        for name in (field.name for field in fields(ArticleFile) if field.name != "path"):
            a, b = getattr(one, name), getattr(other, name)
            if isinstance(a, np.ndarray):
                assert (a.dtype, a.tobytes()) == (b.dtype, b.tobytes())
            else:
                assert (type(a), a) == (type(b), b)
    # The text too, so that a table made anew shows no difference.
    assert (package_files("parity.article") / published.TABLE).read_text() == published.as_table(
        theirs
    )


def test_the_table_names_its_source_and_licence():
    content = json.loads((package_files("parity.article") / published.TABLE).read_text())
    assert content["schema"] == "training-parity/published/1"
    assert "github.com/D9Dre4mer/AIO2025_Blogs" in content["source"]["files"]
    assert "Copyright (c) 2025 D9Dre4mer" in content["source"]["licence"]


def test_a_changed_figure_changes_the_table():
    first = published.published()[0]
    accuracy = first.test_accuracy.copy()
    accuracy[-1] = np.nextafter(accuracy[-1], 100)
    changed = replace(first, test_accuracy=accuracy)
    assert published.as_table([changed]) != published.as_table([first])


def test_a_folder_without_result_files_is_refused(tmp_path):
    command = [sys.executable, "-m", "parity.article.published", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Give the folder of the article's files" in done.stderr


def test_the_table_is_part_of_the_package():
    from pathlib import Path
    from tomllib import loads

    project = loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    assert project["tool"]["setuptools"]["package-data"]["parity.article"] == [published.TABLE]


@pytest.mark.parametrize("kind", files.FILE_KINDS)
def test_every_kind_is_there(kind):
    # Source: the counts of the article's repository.
    count = {"train": 16, "deterministic": 31, "optimizer": 18}[kind]
    assert [file.file_kind for file in published.published()].count(kind) == count
