import json
import subprocess
import sys
from dataclasses import replace

import pytest

from parity import compare, runs


@pytest.fixture
def two_runs(tmp_path, make_record):
    folder = tmp_path / "runs"
    for framework in ("jax", "torch"):
        path = folder / framework
        path.mkdir(parents=True)
        runs.write_record(replace(make_record(framework=framework), path=path))
    return folder


@pytest.fixture
def command(monkeypatch, capsys):
    """Return a function that runs the command: its exit status, stdout and stderr."""

    def run(*arguments) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["compare", *map(str, arguments)])
        status = 0
        try:
            compare.main()
        except SystemExit as end:
            status = int(end.code or 0)
        return status, *capsys.readouterr()

    return run


def test_two_bitwise_runs_are_said_to_be_so(command, two_runs):
    status, out, err = command(two_runs)
    assert (status, err) == (0, "")
    assert "Bitwise identical: 2 runs" in out
    assert "framework jax (run 1), torch (run 2)" in " ".join(out.split())


def test_json_prints_one_document_and_nothing_else(command, two_runs, tmp_path):
    status, out, err = command(two_runs, "--json", "--out", tmp_path / "out", "--threshold", "65")
    assert status == 0
    assert json.loads(out)["threshold_percent"] == 65.0
    assert err.splitlines() == [
        str(tmp_path / "out" / "comparison.json"),
        str(tmp_path / "out" / "comparison.txt"),
    ]


def test_out_holds_what_is_printed(command, two_runs, tmp_path):
    _, out, _ = command(two_runs, "--out", tmp_path / "a" / "b")
    printed = [line.rstrip() for line in out.splitlines()]
    text, document = (tmp_path / "a" / "b" / f"comparison.{kind}" for kind in ("txt", "json"))
    assert printed[-2:] == [str(document), str(text)]
    assert text.read_text().splitlines() == printed[:-2]
    assert json.loads(document.read_text())["schema"] == "training-parity/comparison/1"


def test_an_out_that_cannot_be_written_is_one_clear_line(command, two_runs, tmp_path):
    (tmp_path / "file").write_text("")
    status, _, err = command(two_runs, "--out", tmp_path / "file")
    assert status == 2
    assert err.endswith("Choose another --out.\n")


def test_what_is_skipped_is_named_on_stderr(command, two_runs):
    (two_runs / "notes.json").write_text("{}")
    status, out, err = command(two_runs, "--json")
    assert status == 0
    assert "warning: skipped:" in err
    assert "notes.json" in err
    assert len(json.loads(out)["results"]) == 2


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ([], "No path given"),
        (["--by", "framework", "{runs}"], "Put them before --by"),
        (["{empty}"], "Give folders of runs"),
        (["{empty}/typo"], "Give run folders or result files"),
        (["{runs}", "--threshold", "170"], "0 to 100"),
        (["{runs}", "--by", "color"], "Choose from"),
    ],
)
def test_a_mistake_is_told_with_exit_status_2(command, two_runs, tmp_path, arguments, advice):
    (tmp_path / "empty").mkdir()
    places = {"runs": two_runs, "empty": tmp_path / "empty"}
    status, out, err = command(*(argument.format(**places) for argument in arguments))
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert advice in err


def test_groups_by_several_fields(command, two_runs):
    _, out, _ = command(two_runs, "--by", "framework", "seed", "--json")
    assert json.loads(out)["by"] == {"run": ["framework", "seed"]}
    assert len(json.loads(out)["groups"]) == 2


def test_the_articles_files_print_the_headline_group(command, article_results):
    status, out, _ = command(article_results)
    assert status == 0
    (line,) = [
        line
        for line in out.splitlines()
        if "deterministic  adam       seed_42_tf32_False_amp_False_w0" in line
    ]
    assert line.split()[-5:] == ["16", "77.8906", "0.2688", "77.59", "78.46"]
    assert "0.87  0.985069" in out
    assert "Statistical (acceptable)" in out
    assert "cannot be checked from the files" in " ".join(out.split())


def test_published_sets_runs_beside_the_articles_devices_without_its_files(command, two_runs):
    status, out, _ = command(two_runs, "--published")
    assert status == 0
    assert "Group A is not comparable with them: epochs 5, the article's is 10." in out
    status, out, _ = command(two_runs, "--published", "--json")
    assert len(json.loads(out)["published"]["devices"]) == 18
    assert json.loads(command(two_runs, "--json")[1])["published"] is None


def test_published_needs_runs_to_set_beside(command, article_results):
    status, out, err = command(article_results, "--published")
    assert (status, out) == (2, "")
    assert err.endswith("Give run folders too, or leave --published out.\n")


def test_help_needs_no_numpy():
    probe = "import sys, parity.compare; print('numpy' in sys.modules, 'rich.table' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, check=True, text=True)
    assert done.stdout.split()[0] == "False"
