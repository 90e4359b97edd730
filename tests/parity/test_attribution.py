"""What the ladder's runs show: measured on weights made for it, and said in words."""

import json
from dataclasses import replace

import numpy as np
import pytest

from parity.architecture import initial_weights
from parity.attribution import (
    COMPARED,
    FEW_STEPS,
    OTHER_CHOICE,
    Attribution,
    Rung,
    in_words,
    measure,
    share_in_words,
)
from parity.bits import Step
from parity.exact.operations import OPERATIONS

START = initial_weights(1)
LOSSES = np.array([2.5, 2.25], np.float32)


def trained(**changes):
    """Return weights that each moved by 2**-10, and some of them further."""
    weights = {name: array + np.float32(2**-10) for name, array in START.items()}
    return weights | {name: weights[name] + np.float32(by) for name, by in changes.items()}


def between(a, b, losses=(LOSSES, LOSSES)) -> Rung:
    return measure(("dot",), losses, (a, b), START)


def test_equal_runs_are_bitwise():
    rung = between(trained(), trained())
    assert rung.bitwise
    assert (rung.first_step, rung.loss, rung.values_percent) == (None, 0, 0)
    assert (rung.typical, rung.farthest) == (0, 0)


def test_a_tensor_is_as_far_apart_as_a_share_of_its_way():
    weights = trained()
    farther = weights | {
        # Every value goes as far again, so that the difference is half of the longer way.
        "fc2.bias": START["fc2.bias"] + 2 * (weights["fc2.bias"] - START["fc2.bias"])
    }
    rung = between(weights, farther)
    assert rung.farthest_tensor == "fc2.bias"
    # Weights around 0.1 are rounded to 2**-27, beside a way of 2**-10.
    assert rung.farthest == pytest.approx(0.5, rel=2**-16)
    assert rung.typical == 0
    assert rung.values_percent == 100 * 10 / sum(START[name].size for name in COMPARED)


def test_one_bit_in_one_weight_is_seen():
    one = trained()
    other = {name: array.copy() for name, array in one.items()}
    other["fc1.weight"].view(np.uint32)[3, 5] ^= 1
    rung = between(one, other)
    assert not rung.bitwise
    assert 0 < rung.farthest < 1e-9
    assert rung.values_percent == 100 / sum(START[name].size for name in COMPARED)


def test_the_typical_tensor_is_the_median():
    far = {name: 2.0**-13 * (i + 1) for i, name in enumerate(COMPARED)}
    rung = between(trained(), trained(**far))
    middle = far[COMPARED[len(COMPARED) // 2]]
    # Rounding of weights, as above; the way is the longer one, 2**-10 + `middle`.
    assert rung.typical == pytest.approx(middle / (2**-10 + middle), rel=1e-3)
    assert rung.farthest_tensor == COMPARED[-1]


def test_what_batch_norm_cancels_does_not_count():
    rung = between(trained(), trained(**{"conv1.bias": 1.0, "conv3.bias": 1.0}))
    assert rung.bitwise


def test_losses_count_in_the_first_step_and_by_their_largest_difference():
    later = LOSSES.copy()
    later[1] = np.nextafter(later[1], np.float32(3))
    rung = between(trained(), trained(), (LOSSES, later))
    assert rung.first_step == Step(2, 1)
    assert rung.loss == pytest.approx(2**-22 / 2.25)
    assert not rung.bitwise


FIRST = Step(1, 3)


def rung(name, typical, *, farthest=None, first_step=FIRST, values=10.0) -> Rung:
    return Rung(
        native=(name,),
        first_step=first_step,
        loss=1e-6,
        values_percent=values,
        typical=typical,
        farthest=3 * typical if farthest is None else farthest,
        farthest_tensor="conv1.weight",
    )


NEVER = rung("none", 0.0, first_step=None, values=0.0)


def attribution(everything=1e-6, num_steps=2, nothing=NEVER, **alone) -> Attribution:
    return Attribution(
        sides=("torch:cpu", "jax:cpu"),
        num_steps=num_steps,
        everything=rung("all", everything),
        alone=tuple(rung(name, typical) for name, typical in alone.items()),
        nothing=nothing,
    )


@pytest.mark.parametrize(
    ("ladder", "words"),
    [
        (
            attribution(dot=9.8e-7, batchnorm=3e-8, softmax=1e-8),
            "dot alone makes 98 % of the difference in the typical tensor: most of it. "
            "Of the others batchnorm makes most.",
        ),
        (
            attribution(dot=2e-6, batchnorm=3e-8, softmax=2e-8, optimizer=0.0),
            "dot alone makes 2.0 times the difference in the typical tensor: most of it. "
            "Of the others batchnorm and softmax make most.",
        ),
        (
            attribution(dot=5e-7, batchnorm=3e-6, softmax=1e-6),
            "dot alone makes 50 % of the difference in the typical tensor. Of the rest batchnorm "
            "makes most.",
        ),
        (
            attribution(dot=5e-9, batchnorm=2e-7, optimizer=1e-6),
            "optimizer makes most of the difference in the typical tensor; dot alone makes < 1 %.",
        ),
        (
            attribution(batchnorm=2e-7, optimizer=1e-6),
            "Of the operations tried optimizer makes most of the difference.",
        ),
        (attribution(dot=1e-7), "dot alone makes 10 % of the difference in the typical tensor"),
        (attribution(dot=0.0, softmax=0.0), "No operation alone makes a difference in the typical"),
    ],
)
def test_the_verdict_says_which_operation_brings_most(ladder, words):
    assert in_words(ladder).startswith(words)


def test_many_steps_are_warned_of():
    assert "has grown" not in in_words(attribution(num_steps=FEW_STEPS, dot=1e-6))
    warned = in_words(attribution(num_steps=16, dot=1e-6))
    assert "After 16 steps, though, every difference has grown" in warned


def test_a_choice_that_was_another_is_told_from_rounding():
    ladder = attribution(dot=1e-6, softmax=1e-7)
    dot, softmax = ladder.alone
    near = replace(ladder, alone=(replace(dot, farthest=OTHER_CHOICE), softmax))
    assert "chosen otherwise" not in in_words(near)
    far = replace(ladder, alone=(replace(dot, farthest=4e-4), softmax))
    assert "With dot native, ReLU or max-pool seem to have chosen otherwise" in in_words(far)
    assert "conv1.weight is 4e-04 apart" in in_words(far)
    assert "chosen otherwise" not in in_words(replace(far, num_steps=FEW_STEPS + 1))


def test_nothing_to_attribute_is_said():
    same = replace(attribution(nothing=None), everything=NEVER)
    assert in_words(same) == (
        "torch:cpu and jax:cpu are bitwise identical in float32 after 2 steps: there is no "
        "difference to attribute."
    )


def test_exact_runs_that_differ_are_no_basis():
    broken = attribution(dot=1e-6, nothing=rung("none", 1e-9))
    assert "differ even where every operation is exact. That must not be" in in_words(broken)


def test_losses_alone_may_differ():
    ladder = attribution(everything=0.0)
    ladder = replace(ladder, alone=(replace(NEVER, native=("dot",)), rung("softmax", 0.0)))
    assert in_words(ladder) == (
        "After 2 steps the weights of torch:cpu and jax:cpu agree in the typical tensor to the bit."
        " Losses differ from step 1 on; of single operations softmax does so."
    )
    assert ladder.share(ladder.alone[1]) is None


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0 %"),
        (0.004, "< 1 %"),
        (0.98, "98 %"),
        (1.5, "150 %"),
        (1.51, "1.5 times"),
        (9.94, "9.9 times"),
        (13.2, "13 times"),
    ],
)
def test_a_share_is_read_at_a_glance(share, text):
    assert share_in_words(share) == text


def test_the_document_is_json_and_holds_all():
    ladder = attribution(**dict.fromkeys(OPERATIONS, 1e-7))
    document = json.loads(json.dumps(ladder.to_json(), allow_nan=False))
    assert document["schema"] == "training-parity/attribution/1"
    assert [entry["native"] for entry in document["alone"]] == [[name] for name in OPERATIONS]
    assert document["shares"] == pytest.approx([0.1] * len(OPERATIONS))
    assert document["verdict"] == in_words(ladder)
