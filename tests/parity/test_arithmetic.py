import pytest

from parity import arithmetic
from parity.arithmetic import PRESETS, Device, shortfall, why_not
from parity.config import TrainConfig
from parity.errors import UserError
from parity.platforms import Platform

T4, A100 = (7, 5), (8, 0)
AVX512_BF16 = frozenset({"avx512f", "avx512_bf16"})
AMX = AVX512_BF16 | {"amx_bf16", "amx_tile"}


def reason(framework, kind, *, capability=None, flags=None, level=None, **settings):
    platform = Platform(kind, level=level)
    return why_not(
        framework, Device(platform=platform, capability=capability, cpu_flags=flags), settings
    )


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_tf32_needs_an_nvidia_gpu_from_ampere_on(framework):
    assert reason(framework, "gpu", capability=A100, arithmetic="tf32") is None
    assert "capability 7.5) has no TF32" in reason(
        framework, "gpu", capability=T4, arithmetic="tf32"
    )
    # 10.0 is newer than 8.0, though not as text.
    assert reason(framework, "gpu", capability=(10, 0), arithmetic="tf32") is None
    assert (
        reason(framework, "gpu", arithmetic="tf32") is None
    )  # unknown: nothing is held against it
    for kind in ("cpu", "tpu"):
        assert f"this is {kind}. Use --arithmetic emulate-tf32" in reason(
            framework, kind, arithmetic="tf32"
        )


def test_bf16_is_a_matter_of_amx_in_pytorch_and_of_tpus_in_jax():
    assert reason("torch", "cpu", flags=AMX, arithmetic="bf16") is None
    assert "amx_bf16), which this one lacks" in reason(
        "torch", "cpu", flags=AVX512_BF16, arithmetic="bf16"
    )
    assert "caps oneDNN below AMX" in reason(
        "torch", "cpu", flags=AMX, level="avx512", arithmetic="bf16"
    )
    assert reason("jax", "tpu", arithmetic="bf16") is None
    assert "Use --arithmetic amp-bf16 or emulate" in reason(
        "jax", "cpu", flags=AMX, arithmetic="bf16"
    )
    for framework in ("torch", "jax"):
        assert "on gpu" in reason(framework, "gpu", capability=A100, arithmetic="bf16")


def test_mixed_precision_needs_products_of_its_type():
    for framework in ("torch", "jax"):
        for mode in ("amp-bf16", "amp-fp16"):
            assert reason(framework, "cpu", arithmetic=mode) is None
            assert reason(framework, "gpu", capability=A100, arithmetic=mode) is None
        assert reason(framework, "gpu", capability=T4, arithmetic="amp-fp16") is None
        assert "no bfloat16" in reason(framework, "gpu", capability=T4, arithmetic="amp-bf16")
    assert "no float16" in reason("jax", "tpu", arithmetic="amp-fp16")


@pytest.mark.parametrize("kind", ["tpu", "mps"])
@pytest.mark.parametrize(
    "settings", [{"arithmetic": "float64"}, {"arithmetic": "exact"}, {"exact_only": ["dot"]}]
)
def test_what_needs_float64_is_refused_where_there_is_none(kind, settings):
    assert "float64. Use --arithmetic float32 without" in reason("torch", kind, **settings)


def test_emulation_runs_anywhere():
    for kind in ("cpu", "gpu", "tpu", "mps"):
        assert reason("torch", kind, capability=T4, arithmetic="emulate-tf32") is None


def test_kernels_are_a_choice_on_gpus():
    for framework in ("torch", "jax"):
        assert reason(framework, "gpu", autotune=True, deterministic=False) is None
        assert "cpu has nothing to choose" in reason(framework, "cpu", autotune=True)
    assert reason("torch", "cpu", deterministic=False) is None
    assert "no other kernels. Use --deterministic" in reason("jax", "cpu", deterministic=False)


def test_presets_are_the_articles():
    # Golden: the article, section 4.4 and quick reference (TF32, workers, cuDNN benchmark), and
    # 4.1 (deterministic algorithms), of its repository's Blog.md.
    article = {
        "deterministic": ("float32", 0, False, True),
        "balanced": ("float32", 0, True, False),
        "performance": ("tf32", 4, True, False),
    }
    names = ("arithmetic", "workers", "autotune", "deterministic")
    assert {p: tuple(s[n] for n in names) for p, s in PRESETS.items()} == article


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_its_settings_and_nothing_against_them(name):
    config = TrainConfig(**PRESETS[name], preset=name)
    assert TrainConfig.from_json({"preset": name}) == config
    assert "preset" not in config.to_json()
    with pytest.raises(UserError, match=f"--preset {name} has --.*contradicts it. Leave out one"):
        TrainConfig(**PRESETS[name] | {"autotune": not config.autotune}, preset=name)


def test_a_device_that_keeps_other_bits_is_told_of():
    assert shortfall("bf16", {"linear": 7, "conv": 7}) is None
    assert "operands of 7 mantissa bits, and this device keeps others: conv 23." in (
        shortfall("bf16", {"linear": 7, "conv": 23}) or ""
    )
    assert shortfall("float32", {"linear": 10}) is not None
    assert shortfall("bf16", None) is shortfall("exact", {"linear": 20}) is None


def test_every_mode_has_its_bits_but_the_exact_one():
    from typing import get_args

    modes = set(get_args(arithmetic.Arithmetic))
    assert modes - set(arithmetic.OPERAND_BITS) == {"exact"}
