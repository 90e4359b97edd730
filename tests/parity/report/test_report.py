"""The report holds every figure with its numbers, and what comes from records stays text."""

import csv
import errno
import html
import json
import math
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

from parity.comparison import compare
from parity.errors import UserError
from parity.report import series
from parity.report.__main__ import write
from parity.report.blocks import blocks
from parity.report.figures import draw
from parity.report.page import render, repeating
from parity.results import read
from parity.tables.groups import groups

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
CURVE = np.array([50.0, 60.0, 65.0, 68.0])


@pytest.fixture(scope="module")
def comparison(make_result):
    """Return two frameworks, two platforms, two optimizers and two seeds."""
    rng = np.random.default_rng(0)
    return compare(
        [
            make_result(
                f"{framework}-{platform}-{optimizer}-{seed}",
                accuracy=(CURVE + rng.normal(0, 0.3, 4)).tolist(),
                framework=framework,
                platform=platform,
                optimizer=optimizer,
                seed=seed,
            )
            for framework in ("torch", "jax")
            for platform in ("cpu", "cpu:sse4")
            for optimizer in ("adam", "sgd")
            for seed in (1, 2)
        ],
        threshold=65.0,
    )


def test_a_device_is_a_platform_of_a_framework(comparison):
    found = series.configurations(comparison)
    assert [configuration.name for configuration in found] == ["adam", "sgd"]
    assert found[0].devices() == ["PyTorch cpu", "PyTorch cpu:sse4", "JAX cpu", "JAX cpu:sse4"]
    assert all(len(found[0].on(device)) == 2 for device in found[0].devices())


def test_trajectories_are_mean_and_range_of_the_runs(comparison):
    main = series.configurations(comparison)[0]
    runs = main.on("JAX cpu")
    last = [run.curves["test_accuracy"][-1] for run in runs]
    (row,) = [
        r
        for r in series.trajectories(main)
        if (r["device"], r["run"], r["metric"], r["epoch"]) == ("JAX cpu", "", "test_accuracy", 4)
    ]
    assert (row["min"], row["max"], row["runs"]) == (min(last), max(last), 2)
    assert row["mean"] == pytest.approx(np.mean(last), rel=1e-15)  # one rounding of two numbers


def test_repeats_of_a_device_add_up_to_nothing(comparison):
    rows = [row for row in series.repeats(series.configurations(comparison)[0]) if row["run"]]
    assert len(rows) == 8 * 4
    for epoch in range(1, 5):
        apart = [r["mean"] for r in rows if r["epoch"] == epoch and r["device"] == "JAX cpu"]
        assert sum(apart) == pytest.approx(0, abs=1e-12)  # the rounding of accuracies near 70
        assert max(apart) > 0


def test_every_optimizer_has_a_panel_with_lines(comparison):
    (drawn,) = [d for d in draw(comparison) if d.name == "optimizers"]
    above, below = drawn.figure.axes[:2], drawn.figure.axes[2:]
    assert [axes.get_title() for axes in above] == ["adam", "sgd"]
    for axes in (*above, *below):
        assert axes.lines, "an empty panel"


def test_figures_are_written_with_the_numbers_that_they_show(comparison, tmp_path):
    page = write(comparison, tmp_path)
    names = [drawn.name for drawn in draw(comparison)]
    assert names == [
        *("accuracy", "trajectories", "variance", "effects", "heatmap", "optimizers", "repeats")
    ]
    for name in names:
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert b"</svg>" in (tmp_path / f"{name}.svg").read_bytes()
        assert page.read_text().count(f"{name}.csv") == 1
    with (tmp_path / "accuracy.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(r["run"], float(r["mean"])) for r in rows] == [
        (r["run"], r["mean"]) for r in series.accuracies(series.configurations(comparison)[0])
    ]


@pytest.mark.parametrize("name", ["accuracy", "trajectories", "optimizers", "repeats"])
def test_every_number_plotted_is_among_the_numbers(comparison, name):
    (drawn,) = [d for d in draw(comparison) if d.name == name]
    # The horizontal line at zero of the repeated runs is no number of theirs.
    known = {row[key] for row in drawn.rows for key in ("mean", "min", "max")} | {0}
    horizontal = [axes.get_xlabel() != "epoch" for axes in drawn.figure.axes]
    for axes, across in zip(drawn.figure.axes, horizontal, strict=True):
        for line in axes.lines:
            values = line.get_xdata() if across else line.get_ydata()
            assert set(np.asarray(values, float).tolist()) <= known


def test_the_parts_of_the_variance_are_drawn_as_they_are(comparison):
    (drawn,) = [d for d in draw(comparison) if d.name == "variance"]
    # Two configurations (optimizers), two outcomes, five parts each.
    assert len(drawn.rows) == 2 * 2 * 5
    assert [axes.get_title() for axes in drawn.figure.axes[::2]] == ["adam", "sgd"]
    for number, axes in enumerate(drawn.figure.axes):
        rows = drawn.rows[5 * number : 5 * number + 5]
        bars = [patch.get_width() for patch in axes.patches]
        assert bars == [row["value"] for row in rows]
        lines = [list(line.get_xdata()) for line in axes.lines]
        assert lines == [[row["low"], row["high"]] for row in rows if row["high"]]
    accuracy = comparison.crossed[0].measures[0]
    for row, part in zip(drawn.rows, accuracy.parts, strict=False):
        variances = part.variance, part.low, part.high
        assert (row["value"], row["low"], row["high"]) == tuple(map(math.sqrt, variances))


def test_what_is_exactly_zero_is_drawn_as_such(make_result):
    runs = [
        make_result(framework=f, seed=s, accuracy=(60.0, 70.0 + s), digests=["0", f"{s}"])
        for f in ("jax", "torch")
        for s in (1, 2, 3)
    ]
    (drawn,) = [d for d in draw(compare(runs, threshold=70.0)) if d.name == "variance"]
    assert [text.get_text() for text in drawn.figure.axes[0].texts] == [" exactly 0"] * 2


def test_of_many_runs_mean_and_range_are_drawn_alone(make_result):
    rng = np.random.default_rng(0)
    runs = [
        make_result(f"{seed}", accuracy=(CURVE + rng.normal(0, 0.3, 4)).tolist(), seed=seed)
        for seed in range(series.MAX_LINES + 1)
    ]
    figures = {d.name: d for d in draw(compare(runs, threshold=70.0))}
    few = {d.name: d for d in draw(compare(runs[1:], threshold=70.0))}
    for name in ("accuracy", "trajectories", "repeats"):
        assert {row["run"] for row in figures[name].rows} == {""}
        assert len({row["run"] for row in few[name].rows}) == series.MAX_LINES + 1
        assert len(figures[name].svg) < len(few[name].svg)
        (last,) = {row["runs"] for row in figures[name].rows}
        assert last == len(runs)


def test_the_page_needs_no_network(comparison):
    page = render(comparison, list(draw(comparison)))
    assert "http://" not in page
    assert "https://" not in page
    assert "default-src 'none'" in page


class Scripts(HTMLParser):
    """Counts script elements."""

    count = 0

    def handle_starttag(self, tag, attrs):
        self.count += tag == "script"


def test_what_comes_from_records_stays_text(make_result):
    evil = "<script>alert(1)</script>"
    results = [make_result(f"{evil}{i}", environment={"device": evil}) for i in range(2)]
    page = render(compare(results, threshold=70.0), [])
    parser = Scripts()
    parser.feed(page)
    assert parser.count == 1  # the page's own
    assert "&lt;script&gt;alert(1)" in page


def test_tables_become_rows_of_the_page(comparison):
    tables = [block for block in blocks(groups(comparison)) if block.kind == "table"]
    assert tables
    for table in tables:
        assert all(len(row) == len(table.headers) == len(table.right) for row in table.rows)
    assert any("std" in table.headers for table in tables)


def test_the_command_repeats_the_settings_that_are_not_usual(make_result):
    result = make_result(
        "x", framework="jax", platform="cpu:avx2", optimizer="sgd", seed=7, accuracy=CURVE.tolist()
    )
    assert repeating(result) == (
        "python -m jax_impl.train --device cpu:avx2 --optimizer sgd --epochs 4 --seed 7"
    )


def test_the_command_repeats_switches_as_they_are_typed(make_result):
    result = make_result("x", workers=4, autotune=True, deterministic=False, accuracy=[1.0])
    words = repeating(result).split()
    assert {"--autotune", "--no-deterministic"} <= set(words)
    assert words[words.index("--workers") + 1] == "4"
    assert not {"True", "False"} & set(words)


def test_runs_without_an_end_have_a_page_without_figures(make_result, tmp_path):
    comparison = compare([make_result("x", status="running")], threshold=70.0)
    assert "nothing to draw" in write(comparison, tmp_path).read_text()


def test_a_folder_that_cannot_be_written_is_told(comparison, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="Choose another --out"):
        write(comparison, tmp_path / "file")


def test_a_full_disk_is_told_and_leaves_the_page_as_it_was(comparison, tmp_path, monkeypatch):
    page = write(comparison, tmp_path)
    before, names = page.read_bytes(), sorted(tmp_path.iterdir())

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="No space left on device"):
        write(comparison, tmp_path)
    assert page.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == names


def test_the_article_has_every_figure(article_results):
    results = read([article_results]).results
    found = {drawn.name: drawn for drawn in draw(compare(results, threshold=70.0))}
    assert len(found) == 6
    finals = [row["mean"] for row in found["accuracy"].rows if row["run"]]
    # Published: the headline group's 16 runs, mean 77.890625.
    assert len(finals) == 16
    assert np.mean(finals) == pytest.approx(77.890625, abs=1e-9)  # numpy's own order of adding


INSIDE = """
<script>
const errors = [];
window.addEventListener("error", event => errors.push(event.message));
window.addEventListener("load", () => {
  const tables = [...document.querySelectorAll("table")];
  const table = tables.find(t => t.tHead && t.tBodies[0].rows.length > 3);
  const button = table.querySelector("th button");
  const read = () => [...table.tBodies[0].rows].map(row => row.cells[0].textContent.trim());
  button.click(); const up = read(); button.click(); const down = read();
  const images = [...document.images];
  parent.postMessage(JSON.stringify({errors, up, down, images: images.length,
    loaded: images.filter(image => image.naturalWidth > 0).length,
    narrowest: Math.min(...images.map(image => image.clientWidth)),
    width: innerWidth, wide: document.documentElement.scrollWidth > innerWidth,
    ink: getComputedStyle(document.body).color,
    paper: getComputedStyle(document.body).backgroundColor}), "*");
});
</script>
"""
# In a frame, because no window of Chromium is as narrow as a phone.
AROUND = """<!doctype html><body><script>
addEventListener("message", event => { document.title = event.data; });
</script><iframe src="report.html" style="width: %dpx; height: 800px; border: 0"></iframe>"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_a_browser_shows_the_page(comparison, tmp_path, width, scheme):
    if CHROMIUM is None:
        pytest.skip("needs a chromium: `apt-get install chromium`")
    page = write(comparison, tmp_path)
    page.write_text(page.read_text().replace("<title>", f"{INSIDE}<title>"))
    (tmp_path / "around.html").write_text(AROUND % width)
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += [f"--blink-settings=preferredColorScheme={['dark', 'light'].index(scheme)}"]
    browser = subprocess.run(
        [*command, "--window-size=1400,900", (tmp_path / "around.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    title = browser.stdout.split("<title>")[1].split("</title>")[0]
    seen = json.loads(html.unescape(title))
    assert seen["errors"] == []
    assert seen["loaded"] == seen["images"] == 7
    assert seen["up"] == seen["down"][::-1] != seen["down"]
    assert seen["width"] == width
    assert not seen["wide"], "the page is wider than the window"
    assert seen["narrowest"] >= 600, "the letters of a figure are too small to read"
    ink, paper = (sum(map(int, re.findall(r"\d+", seen[name]))) for name in ("ink", "paper"))
    assert (ink > paper) == (scheme == "dark")


def test_the_command_says_where_the_page_is(tmp_path):
    command = [sys.executable, "-m", "parity.report", str(tmp_path / "none"), "--out", "x"]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 2
    assert "Traceback" not in process.stderr
