"""The page: one HTML file that needs no network."""

import base64
import shlex
from collections.abc import Iterator, Sequence
from importlib.resources import files

import jinja2

from parity.comparison import Comparison
from parity.config import TrainConfig
from parity.report.blocks import Block, blocks
from parity.report.figures import Drawn
from parity.results import Result
from parity.tables.agreement import pairs, verdict
from parity.tables.article import article
from parity.tables.audit import audit
from parity.tables.crossed import crossed
from parity.tables.differences import effects, what_differs
from parity.tables.groups import groups
from parity.tables.published import published
from parity.tables.reading import warnings, what_was_read

MAX_RUNS = 200
"""Runs whose provenance the page lists; all are in comparison.json."""


def render(comparison: Comparison, figures: Sequence[Drawn]) -> str:
    """Return the page's HTML."""
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    template = environment.from_string(
        files("parity.report").joinpath("page.html").read_text("utf-8")
    )
    above = [verdict, warnings, what_differs, audit, crossed]
    below = [groups, published, article, pairs, effects, what_was_read]
    return template.render(
        above=[block for part in above for block in blocks(part(comparison))],
        figures=[(drawn, image(drawn)) for drawn in figures],
        below=[block for part in below for block in blocks(part(comparison))],
        provenance=provenance(comparison.results[:MAX_RUNS]),
        num_left_out=max(0, len(comparison.results) - MAX_RUNS),
    )


def image(drawn: Drawn) -> str:
    """Return a figure as the address of an SVG image, data included."""
    return "data:image/svg+xml;base64," + base64.b64encode(drawn.svg).decode()


def provenance(results: Sequence[Result]) -> Block:
    """Return what each run ran on, and the command that repeats it, as a table."""
    headers = ("run", "device", "versions", "commit", "weights", "command that repeats it")
    return Block(
        "table", "", headers, (False,) * len(headers), tuple(tuple(_row(r)) for r in results)
    )


def _row(result: Result) -> Iterator[str]:
    environment = result.environment
    yield result.name
    device = environment.get("device") or environment.get("cpu") or ""
    yield f"{result.framework} {result.platform}" + (f", {device}" if device else "")
    names = ("versions.torch", "versions.jax", "versions.flax", "versions.numpy")
    versions = {n.removeprefix("versions."): environment.get(n) for n in names}
    yield ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    yield str(environment.get("git_commit") or "")[:12]
    yield result.digests[-1][:12] if result.digests else ""
    yield repeating(result) if result.kind == "run" else ""


def repeating(result: Result) -> str:
    """Return the command that repeats a run: the settings that are not the defaults'."""
    usual = TrainConfig().to_json()
    settings = result.configuration | {
        "arithmetic": result.arithmetic,
        "optimizer": result.optimizer,
        "seed": result.seed,
        "device": result.platform,
    }
    flags: list[str] = []
    for name in (name for name in usual if name not in ("out", "data_dir")):
        value = settings.get(name)
        if value not in (None, "none", usual[name]):  # "none": no operation of exact_only
            flag = name.replace("_", "-")
            words = (f"--{flag}", str(value))
            if isinstance(value, bool):
                words = (f"--{flag}" if value else f"--no-{flag}",)
            flags += words
    return shlex.join(["python", "-m", f"{result.framework}_impl.train", *flags])
