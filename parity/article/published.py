"""The article's per-epoch figures as this project's own table: published.json, in the package.

python -m parity.article.published RESULTS    makes the table anew from the 65 result files
"""

import json
from collections.abc import Sequence
from dataclasses import fields
from importlib.resources import files as package_files
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from parity.article import files
from parity.article.files import ArticleFile
from parity.command import user_errors, writing
from parity.errors import UserError
from parity.files import write_atomically

SCHEMA = "training-parity/published/1"

TABLE = "published.json"

SOURCE = {
    "article": "Cross-GPU Reproducibility",
    "files": "https://github.com/D9Dre4mer/AIO2025_Blogs, folder 251226 Blog Hardware 2/results",
    "licence": (
        "MIT License. Copyright (c) 2025 D9Dre4mer. Permission is hereby granted, free of charge, "
        "to any person obtaining a copy of this software and associated documentation files (the "
        '"Software"), to deal in the Software without restriction, including without limitation '
        "the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell "
        "copies of the Software, and to permit persons to whom the Software is furnished to do "
        "so, subject to the following conditions: The above copyright notice and this permission "
        "notice shall be included in all copies or substantial portions of the Software. THE "
        'SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, '
        "INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR "
        "PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE "
        "LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT "
        "OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR "
        "OTHER DEALINGS IN THE SOFTWARE."
    ),
    "units": "losses in nats, accuracies in percent, one value an epoch",
}

_NAMES = tuple(field.name for field in fields(ArticleFile) if field.name != "path")
_CURVES = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")


def published() -> list[ArticleFile]:
    """Return the article's 65 files as the table holds them, every figure to the bit."""
    text = (package_files("parity.article") / TABLE).read_text()
    return [_file(row) for row in json.loads(text)["runs"]]


def _file(row: dict[str, Any]) -> ArticleFile:
    curves = {name: np.array(row[name], np.float64) for name in _CURVES}
    values: dict[str, Any] = {name: row[name] for name in _NAMES} | curves
    return ArticleFile(path=Path(row["name"]), **values)


def as_table(read: Sequence[ArticleFile]) -> str:
    """Return the table's text: one line a file of the article."""
    rows = (json.dumps(_row(file), allow_nan=False) for file in read)
    head = json.dumps({"schema": SCHEMA, "source": SOURCE}, indent=1)
    return head.removesuffix("\n}") + ',\n "runs": [\n' + ",\n".join(rows) + "\n ]\n}\n"


def _row(file: ArticleFile) -> dict[str, Any]:
    values = {name: getattr(file, name) for name in _NAMES}
    curves = {name: getattr(file, name).tolist() for name in _CURVES}
    return {"name": file.path.name} | values | curves


def make(results: Annotated[Path, tyro.conf.Positional]) -> None:
    """Make the package's table of the article's figures anew.

    Args:
        results: Folder of the article's result files.
    """
    paths = sorted(results.glob("*.json"))
    if not paths:
        raise UserError(f"{results} holds no result file. Give the folder of the article's files.")
    path = Path(str(package_files("parity.article") / TABLE))
    text = as_table([files.read(path) for path in paths])
    with writing(path):
        write_atomically(path, lambda file: file.write(text.encode()))
    print(path)


def main() -> None:
    """Run the command line."""
    with user_errors():
        tyro.cli(make, prog="python -m parity.article.published")


if __name__ == "__main__":
    main()
