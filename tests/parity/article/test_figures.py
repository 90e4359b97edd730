"""Every figure that the article publishes, and an independent reckoning of some."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from parity import results as reading
from parity.article import figures as module
from parity.article.figures import Figures, figures


@pytest.fixture(scope="module")
def published(article_results) -> Figures:
    found = figures(reading.read([article_results]).results, threshold=70.0)
    assert found is not None
    return found


def test_the_headline_group(published):
    name, pool = published.headline
    # Source: the article's reproducibility_analysis.csv, every digit; it gives Max_Diff as
    # 0.8699999999999903, which is 78.46 - 77.59 in binary fractions.
    assert name == "seed_42_tf32_False_amp_False_w0"
    assert pool.spread.num_runs == 16
    assert len(published.devices) == 6
    assert pool.spread.mean_accuracy == 77.890625
    assert pool.spread.std_accuracy == 0.2688277503811686
    assert (pool.spread.min_accuracy, pool.spread.max_accuracy) == (77.59, 78.46)
    assert pool.spread.max_difference == 0.87
    assert pool.spread.correlations.mean == 0.9850692095403718
    assert pool.category == "Statistical (acceptable)"


# Source: the article's gpu_accuracy_comparison.csv, every digit.
DEVICES = {
    "TPU": (78.455, 0.0049999999999954525, 78.45, 78.46, 2),
    "RTX 3060": (77.9225, 0.24066314632697952, 77.63, 78.28, 4),
    "L4": (77.85, 0.10000000000000142, 77.75, 77.95, 2),
    "RTX 5090": (77.815, 0.06576473218983075, 77.74, 77.91, 4),
    "A100": (77.71000000000001, 0.10000000000000142, 77.61, 77.81, 2),
    "T4": (77.635, 0.045000000000001705, 77.59, 77.68, 2),
}


def test_the_table_per_device(published):
    assert {device.name for device in published.devices} == set(DEVICES)
    for name, pool in published.devices:
        mean, std, low, high, count = DEVICES[name]
        found = pool.spread
        assert found.mean_accuracy == mean
        # NumPy adds the squares in another order than math.fsum: one unit in the last place for
        # the RTX 3060, none for the others.
        assert abs(found.std_accuracy - std) <= np.spacing(std)
        assert (found.min_accuracy, found.max_accuracy, found.num_runs) == (low, high, count)


def test_the_correlations_of_the_devices(published):
    correlations = [pair.correlation for pair in published.device_pairs]
    assert len(correlations) == 15
    # Source: the article's text, "0.978 - 0.999".
    assert 0.978 <= min(correlations) < 0.979
    assert round(max(correlations), 3) == 0.999


def test_convergence_and_stability_of_the_devices(published):
    # Source: the article's text, 70 % "at epoch 3-4" and a std "of about 5.1-5.9".
    assert {device.pool.spread.threshold_epoch for device in published.devices} == {3, 4}
    stability = [device.pool.spread.stability for device in published.devices]
    assert (round(min(stability), 1), round(max(stability), 1)) == (5.1, 5.9)


# Source: the article's optimizer_sensitivity.csv.
OPTIMIZERS = {
    "A100": (76.0, 70.33, 68.88),
    "L4": (76.27, 73.27, 68.7),
    "RTX 3060": (77.29, 70.62, 69.46),
    "RTX 5090": (77.38, 73.35, 68.71),
    "T4": (75.82, 73.15, 69.77),
    "TPU": (76.82, 75.35, 69.05),
}


def test_the_optimizers(published):
    found = {(cell.device, cell.value): cell.mean for cell in published.optimizers}
    assert len(found) == 18
    for device, accuracies in OPTIMIZERS.items():
        names = ("adam", "rmsprop", "sgd")
        assert tuple(found[device, name] for name in names) == accuracies
    # Source: the article's table, to the digits that it gives.
    means = {entry.optimizer: f"{entry.mean:.2f}" for entry in published.optimizer_means}
    assert means == {"adam": "76.60", "rmsprop": "72.68", "sgd": "69.09"}


def test_impacts_cover_every_run_once_for_each_setting(published):
    for factor in module.FACTORS:
        cells = [cell for cell in published.impacts if cell.factor == factor]
        assert sum(cell.num_runs for cell in cells) == 31
    assert sum(cell.num_runs for cell in published.heatmap) == 31


# What follows reads the files by itself, and reckons with NumPy and SciPy alone.


@pytest.fixture(scope="module")
def raw(article_results) -> list[dict]:
    found = []
    for path in sorted(Path(article_results).glob("*.json")):
        content = json.loads(path.read_text())
        settings = content | content.get("config", {})
        device = settings["gpu_name"].replace("TPU TPU", "TPU")
        for prefix in ("NVIDIA GeForce ", "NVIDIA ", "Tesla "):
            device = device.removeprefix(prefix)
        settings["device"] = device.removesuffix("-SXM4-40GB")
        settings["kind"] = path.name.split("_")[0]
        found.append(settings)
    return found


def independent(raw, device: str, name: str, value) -> list[float]:
    keys = {"tf32": "tf32_enabled", "amp": "amp_enabled", "workers": "num_workers"}
    keys |= {"benchmark": "cudnn_benchmark", "deterministic": "deterministic_algorithms"}
    return [
        run["test_acc"][-1]
        for run in raw
        if run["kind"] == "deterministic"
        and run["device"] == device
        and run.get(keys.get(name, f"{name}_enabled"), False) == value
    ]


def test_impacts_agree_with_an_independent_reckoning(published, raw):
    for cell in published.impacts:
        final = independent(raw, cell.device, cell.factor, cell.value)
        assert cell.num_runs == len(final)
        # Rounding: NumPy adds in another order.
        assert cell.mean == pytest.approx(np.mean(final), rel=1e-14)
        assert cell.std == pytest.approx(np.std(final), abs=1e-13)


def test_device_pairs_agree_with_an_independent_reckoning(published, raw):
    headline = [
        run
        for run in raw
        if run["kind"] == "deterministic"
        and not run.get("tf32_enabled", False)
        and not run["amp_enabled"]
        and run["num_workers"] == 0
    ]
    for first, second, correlation in published.device_pairs:
        a, b = (
            np.mean([run["test_acc"] for run in headline if run["device"] == device], axis=0)
            for device in (first, second)
        )
        # Rounding: sums of ten products.
        assert correlation == pytest.approx(scipy.stats.pearsonr(a, b).statistic, rel=1e-13)


def test_the_heatmap_and_the_pooled_labels_agree_with_an_independent_reckoning(published, raw):
    def settings(run) -> tuple:
        names = {"tf32_enabled": False, "amp_enabled": False, "num_workers": 0}
        return tuple(run.get(name, default) for name, default in names.items())

    for cell in published.heatmap:
        final = [
            run["test_acc"][-1]
            for run in raw
            if run["kind"] == "deterministic"
            and (run["device"], settings(run)) == (cell.device, cell.value)
        ]
        assert (cell.num_runs, cell.mean) == (len(final), pytest.approx(np.mean(final)))
    for label, pool in published.pooled:
        chosen = [
            run for run in raw if label == "seed_42_tf32_{}_amp_{}_w{}".format(*settings(run))
        ]
        final = [run["test_acc"][-1] for run in chosen]
        r = np.corrcoef([run["test_acc"] for run in chosen])
        assert pool.spread.num_runs == len(final)
        assert pool.spread.std_accuracy == pytest.approx(np.std(final))
        above = r[np.triu_indices(len(final), 1)]
        assert pool.spread.correlations.mean == pytest.approx(above.mean())
    assert sum(pool.spread.num_runs for _, pool in published.pooled) == 65


def test_positions_are_those_in_the_results_compared(article_results, make_result):
    results = [make_result(), *reading.read([article_results]).results]
    found = figures(results, threshold=70.0)
    assert found is not None
    assert found.headline is not None
    members = [results[i] for i in found.headline.pool.members]
    assert len({result.name for result in members}) == 16
    assert {result.configuration["label"] for result in members} == {module.HEADLINE}


def test_runs_of_this_project_have_no_published_figures(make_result):
    assert figures([make_result()], threshold=70.0) is None


def test_some_files_alone_yield_what_they_hold(article_results):
    read = reading.read(sorted(article_results.glob("train_T4*.json"))).results
    found = figures(read, threshold=70.0)
    assert found is not None
    assert (found.headline, found.devices, found.heatmap) == (None, (), ())
    assert [entry.pool.spread.num_runs for entry in found.pooled] == [1, 1]


def test_a_change_of_the_last_digit_shows(article_results, published):
    read = reading.read([article_results]).results
    (changed,) = [r for r in read if "L4_tf32_False_amp_False_w0_benchFalse_detTrue" in r.name]
    changed.curves.test_accuracy[-1] += 0.01
    found = figures(read, threshold=70.0)
    assert found is not None
    assert found.headline is not None
    before, after = published.headline.pool.spread, found.headline.pool.spread
    assert after.mean_accuracy == pytest.approx(before.mean_accuracy + 0.01 / 16)
    assert after.correlations.mean != before.correlations.mean
