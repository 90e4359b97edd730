import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity import streams
from parity.streams import Purpose

seeds = st.integers(0, 2**63 - 1)


def philox4x64(counter: int, key: tuple[int, int]) -> list[int]:
    """Salmon et al. 2011, in Python integers: the oracle for what NumPy makes."""
    mask = 2**64 - 1
    x = [counter >> 64 * i & mask for i in range(4)]
    for n in range(10):
        k0 = (key[0] + n * 0x9E3779B97F4A7C15) & mask
        k1 = (key[1] + n * 0xBB67AE8584CAA73B) & mask
        p0, p1 = 0xD2E7470EE14C6C93 * x[0], 0xCA5A826395121157 * x[2]
        x = [p1 >> 64 ^ x[1] ^ k0, p1 & mask, p0 >> 64 ^ x[3] ^ k1, p0 & mask]
    return x


def test_the_oracle_gives_the_known_answer():
    # Golden: Random123 1.14, kat_vectors, "philox4x64 10" with zero counter and key.
    assert [f"{word:x}" for word in philox4x64(0, (0, 0))] == [
        "16554d9eca36314c",
        "db20fe9d672d0fdc",
        "d7e772cee186176b",
        "7e68b68aec7ba23b",
    ]


@given(seeds, st.sampled_from(Purpose), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_raw_is_philox_with_the_position_in_the_upper_half_of_the_counter(
    seed, purpose, major, minor
):
    words = streams.raw(seed, purpose, major, minor, 8)
    base = major << 192 | minor << 128
    # NumPy counts up before it makes a block.
    expected = [word for block in (1, 2) for word in philox4x64(base + block, (seed, purpose))]
    assert words.tolist() == expected


# Golden values below: this project's own definition, numpy 2.4.6, x86-64, 2026-11-30. They guard
# against change; that the raw words are right is shown above.


def test_golden_batch_order():
    assert streams.batch_order(42, 1, 10).tolist() == [8, 0, 6, 3, 5, 4, 9, 1, 7, 2]


def test_golden_subset():
    chosen = streams.subset(42, Purpose.TRAIN_SUBSET, 100, 5)
    assert chosen.tolist() == [9, 23, 36, 65, 83]


def test_golden_augmentation():
    offsets, flips = streams.augmentation(42, 1, 4)
    assert offsets.tolist() == [[5, 0], [0, 4], [3, 6], [7, 1]]
    assert flips.tolist() == [True, True, False, False]


def test_golden_dropout_mask():
    mask = streams.dropout_mask(42, 1, 1, 1, 64)
    assert np.packbits(mask).tobytes().hex() == "ec21d25b48246875"


def test_golden_initial_weight():
    values = streams.initial_weight(42, "fc2.bias", (10,), 256)[:3].tolist()
    assert values == [0.01860111765563488, -0.03316634148359299, -0.055193010717630386]


def test_golden_fingerprint():
    assert streams.fingerprint(42, np.arange(100), 100, 16) == (
        "91590359735c60733799515866471572eb8b3d3374588f2c3c12cac0f73fe96e"
    )


@given(seeds, st.integers(1, 100), st.integers(1, 300))
def test_batch_order_is_a_permutation(seed, epoch, num_samples):
    order = streams.batch_order(seed, epoch, num_samples)
    assert sorted(order.tolist()) == list(range(num_samples))


@given(seeds, st.integers(1, 50), st.integers(1, 50), st.integers(1, 100))
def test_a_sample_is_augmented_alike_in_a_smaller_set(seed, epoch, few, more):
    offsets, flips = streams.augmentation(seed, epoch, few)
    more_offsets, more_flips = streams.augmentation(seed, epoch, few + more)
    assert (offsets == more_offsets[:few]).all()
    assert (flips == more_flips[:few]).all()


@given(seeds, st.integers(1, 50), st.integers(1, 50), st.integers(1, 40), st.integers(1, 40))
def test_a_row_is_masked_alike_in_a_smaller_batch(seed, epoch, step, few, more):
    mask = streams.dropout_mask(seed, epoch, step, few, 128)
    assert (mask == streams.dropout_mask(seed, epoch, step, few + more, 128)[:few]).all()


@pytest.mark.parametrize("purpose", Purpose)
def test_neighbouring_positions_share_no_words(purpose):
    positions = [(42, 1, 1), (43, 1, 1), (42, 2, 1), (42, 1, 2)]
    words = [set(streams.raw(s, purpose, a, b, 1000).tolist()) for s, a, b in positions]
    assert len(set.union(*words)) == 4000


def test_offsets_and_flips_are_uniform():
    offsets, flips = streams.augmentation(42, 1, 90_000)
    counts = np.stack([np.bincount(column, minlength=9) for column in offsets.T])
    # 10,000 expected with a standard deviation of 94; five of them leave one chance in a million.
    assert np.abs(counts - 10_000).max() < 5 * 94
    assert abs(flips.sum() - 45_000) < 5 * 150
    assert abs(np.corrcoef(offsets[:, 0], offsets[:, 1])[0, 1]) < 5 / 300


def test_masks_keep_half():
    mask = streams.dropout_mask(42, 1, 1, 128, 2048)
    assert abs(int(mask.sum()) - 2**17) < 5 * 256  # standard deviation: sqrt(2**18) / 2


def test_initial_weights_fill_their_range():
    values = streams.initial_weight(42, "fc1.weight", (256, 2048), 2048)
    bound = 1 / np.sqrt(2048)
    assert values.dtype == np.float32
    assert -bound <= values.min() < -0.999 * bound
    assert 0.999 * bound < values.max() <= bound
    # The mean of 2**19 uniform values has a standard deviation of bound / sqrt(3 * 2**19).
    assert abs(values.mean(dtype=np.float64)) < 5 * bound / np.sqrt(3 * 2**19)


@pytest.mark.parametrize(
    "changed",
    [
        {"seed": 43},
        {"samples": np.arange(1, 101)},
        {"num_canonical": 101},
        {"batch_size": 17},
    ],
)
def test_the_fingerprint_changes_with_everything_that_changes_a_stream(changed):
    same = {"seed": 42, "samples": np.arange(100), "num_canonical": 100, "batch_size": 16}
    assert streams.fingerprint(**same) != streams.fingerprint(**{**same, **changed})
