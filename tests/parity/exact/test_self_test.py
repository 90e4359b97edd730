"""The start-up test refuses a device whose arithmetic does not hold, and no other."""

import numpy as np
import pytest

from parity.errors import UserError
from parity.exact import oracle
from parity.exact.self_test import Operations, self_test
from parity.exact.transcendental import exp


def double(*arrays):
    return (oracle.double(a) for a in arrays)


def fused(a, b, c):
    a, b, c = double(a, b, c)
    return oracle.to_float32(a * b + c)


def chained(a, b, c):
    a, b, c = double(a, b, c)
    return oracle.to_float32(oracle.double(oracle.to_float32(a * b)) + c)


HOLDS = Operations(
    product=np.matmul,
    to_float32=oracle.to_float32,
    square_root=oracle.square_root,
    fused=fused,
    chained=chained,
    divide=np.divide,
    exp=exp,
)


def subnormals_kept(x):
    return x.astype(np.float32)


def rounded_to_float32(a, b):
    return (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float64)


# A device's fault, and what the message names.
FAULTS = {
    "a product in float32": ({"product": rounded_to_float32}, "the matrix product"),
    "subnormals that are kept": ({"to_float32": subnormals_kept}, "rounding to float32"),
    "a root of another library": (
        {"square_root": lambda x: np.nextafter(oracle.square_root(x), np.float32(9))},
        "the square root",
    ),
    "a rounding too many": ({"fused": chained}, "a * b + c differs"),
    "a rounding dropped": ({"chained": fused}, "a * b + c, rounded twice"),
    "a product with the reciprocal": ({"divide": lambda a, b: a * (1 / b)}, "the float64 division"),
    "a library's exp": (
        {"exp": lambda units: np.rint(np.exp(-units * 2.0**-40) * 2.0**48).astype(np.int64)},
        "exp",
    ),
}


def test_a_device_that_holds_is_accepted():
    self_test("this device", HOLDS)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_device_with_a_fault_is_refused_by_the_operations_name(fault):
    planted, name = FAULTS[fault]
    with pytest.raises(UserError) as error:
        self_test("that device", HOLDS._replace(**planted))
    assert f"does not hold on that device: {name}" in str(error.value)
