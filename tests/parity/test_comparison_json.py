import json

import pytest

from parity import comparison_json
from parity.comparison import compare


def document(results) -> dict:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    text = comparison_json.as_json(compare(results, threshold=70.0))
    return json.loads(text, parse_constant=refuse)


def test_every_figure_keeps_its_full_precision(make_result):
    accuracy = (60.0, 200 / 3, 70.1)
    (result,) = document([make_result("one", accuracy=accuracy)])["results"]
    assert tuple(result["curves"]["test_accuracy"]) == accuracy
    assert result["weights_sha256"] == list(make_result().digests[:3])
    assert result["threshold_epoch"] == 3


def test_the_document_names_its_schema_and_threshold(make_result):
    found = document([make_result()])
    assert found["schema"] == "training-parity/comparison/1"
    assert found["threshold_percent"] == 70.0
    assert set(found) == {
        *("schema", "threshold_percent", "by", "results", "sets", "obstacles", "groups"),
        *("group_pairs", "pooled", "set_pools", "pairs", "num_pairs", "twins", "differences"),
        *("effects", "audit", "crossed", "article", "published", "warnings"),
    }


def test_what_is_worked_out_stands_beside_what_it_comes_from(make_result):
    (pair,) = document([make_result("a"), make_result("b", framework="jax")])["pairs"]
    assert pair["members"] == [0, 1]
    assert pair["agreement"]["bitwise"] is True
    assert pair["agreement"]["closeness"]["close"] is True


@pytest.mark.parametrize(
    "runs",
    [
        [{}],
        [{"accuracy": (10.0,) * 3}, {"accuracy": (10.0,) * 3}],
        [{"accuracy": (10.0,)}, {"accuracy": (11.0,)}],
        [{"accuracy": (), "status": "running"}],
        [{}, {"environment": {"load": float("nan")}}, {"train_loss": [0.0] * 5}],
    ],
)
def test_there_is_never_nan(make_result, runs):
    assert document([make_result(**fields) for fields in runs])["schema"]


def test_an_undefined_correlation_is_null(make_result):
    pooled = document([make_result(accuracy=(10.0, 10.0)), make_result(accuracy=(9.0, 9.0))])
    assert pooled["pooled"]["spread"]["correlations"]["mean"] is None
    assert pooled["pooled"]["category"] is None
