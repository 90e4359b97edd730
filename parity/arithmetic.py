"""The arithmetic modes and the article's presets, and which of them a device can honour.

A mode says what happens to the operands of matrix products and convolutions; weights, optimizer
and sums stay float32 (in float64 all of it is that).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from parity.platforms import Framework, Kind, Platform, cpu_flags

Arithmetic = Literal[
    "float32",
    "float64",
    "exact",
    "tf32",
    "bf16",
    "amp-bf16",
    "amp-fp16",
    "emulate-tf32",
    "emulate-bf16",
]

OPERAND_BITS: dict[Arithmetic, int] = {
    "float32": 23,
    "float64": 52,
    "tf32": 10,
    "bf16": 7,
    "amp-bf16": 7,
    "amp-fp16": 10,
    "emulate-tf32": 10,
    "emulate-bf16": 7,
}
"""Explicit mantissa bits of a product's operands, by mode. Source: IEEE 754 (23, 52, 10), NVIDIA's
A100 whitepaper (TF32: 10), Google's bfloat16 (7). `exact` quantises by its own rules."""

AMP: dict[Arithmetic, Literal["bfloat16", "float16"]] = {
    "amp-bf16": "bfloat16",
    "amp-fp16": "float16",
}
"""The low precision of a mixed-precision mode."""

EMULATED: dict[Arithmetic, int] = {
    mode: OPERAND_BITS[mode] for mode in ("emulate-tf32", "emulate-bf16")
}
"""Mantissa bits to which a mode rounds operands by itself, on any device."""

PresetName = Literal["deterministic", "balanced", "performance"]

PRESETS: dict[PresetName, dict[str, Any]] = {
    "deterministic": {
        "arithmetic": "float32",
        "workers": 0,
        "autotune": False,
        "deterministic": True,
    },
    "balanced": {"arithmetic": "float32", "workers": 0, "autotune": True, "deterministic": False},
    "performance": {"arithmetic": "tf32", "workers": 4, "autotune": True, "deterministic": False},
}
"""What a preset sets. Source: the article "Cross-GPU Reproducibility", sections 4.1, 4.4 and the
quick reference. It asks for deterministic algorithms in the first alone, and for "workers > 0" in
the last, which its runs took as 4."""

AMPERE = (8, 0)
"""The first compute capability with TF32 and bfloat16 products. Source: CUDA C++ Programming
Guide, "Compute Capability 8.x"."""

CAPABILITIES = {"K80": (3, 7), "P4": (6, 1), "P100": (6, 0), "V100": (7, 0), "T4": (7, 5)}
"""Compute capabilities before Ampere, by Ray's name of the accelerator. Source: NVIDIA's list of
CUDA GPUs."""


NO_FLOAT64: dict[Kind, str] = {
    "tpu": "A TPU has no IEEE float64",
    "mps": "Apple's mps has no float64",
}
"""Why a kind of platform can do neither float64 nor exact arithmetic."""


@dataclass(frozen=True, kw_only=True)
class Device:
    """What is known of a device. None stands for unknown, of which nothing is held against it."""

    platform: Platform
    capability: tuple[int, int] | None = None
    """Of an NVIDIA GPU."""
    cpu_flags: frozenset[str] | None = None
    """Of the processor, as Linux names them."""


def preset_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the preset among some settings sets; nothing where there is none of that name."""
    name: Any = settings.get("preset")
    return PRESETS.get(name, {})


def this_machines(platform: Platform, capability: tuple[int, int] | None = None) -> Device:
    """Return what is known of a platform of this machine."""
    return Device(platform=platform, capability=capability, cpu_flags=cpu_flags())


def why_not(framework: Framework, device: Device, settings: Mapping[str, Any]) -> str | None:
    """Return why a device cannot honour some settings, and what to do; None if it can.

    Args:
        framework: The run's.
        device: What is known of it.
        settings: Fields of TrainConfig; those that are missing are at their default.
    """
    kind = device.platform.kind
    mode = settings.get("arithmetic", "float32")
    if mode in ("float64", "exact") or settings.get("exact_only"):
        reason = _float64(device)
    else:
        reason = _low_precision(framework, device, mode)
    if reason is not None:
        return reason
    if settings.get("pipeline", "own") == "article" and framework != "torch":
        return "The article's pipeline is PyTorch's. Use --pipeline own, or torch_impl."
    if settings.get("autotune", False) and kind != "gpu":
        return (
            f"--autotune lets cuDNN or XLA time kernels on an NVIDIA GPU, and {kind} has nothing "
            "to choose. Use --no-autotune."
        )
    if not settings.get("deterministic", True) and framework == "jax" and kind != "gpu":
        return (
            f"--no-deterministic changes nothing for XLA on {kind}, which has no other kernels. "
            "Use --deterministic."
        )
    return None


def _low_precision(framework: Framework, device: Device, mode: Arithmetic) -> str | None:
    match mode:
        case "tf32":
            return _tf32(device)
        case "bf16":
            return _bf16(framework, device)
        case "amp-bf16" if device.platform.kind == "gpu" and _before_ampere(device):
            return f"{_gpu(device)} has no bfloat16 products. Use --arithmetic amp-fp16."
        case "amp-fp16" if device.platform.kind in ("tpu", "xla"):
            return "A TPU has no float16 products. Use --arithmetic amp-bf16."
    return None


def _float64(device: Device) -> str | None:
    if (reason := NO_FLOAT64.get(device.platform.kind)) is None:
        return None
    return f"{reason}. Use --arithmetic float32 without --exact-only, or --device cpu."


def _tf32(device: Device) -> str | None:
    remedy = "Use --arithmetic emulate-tf32, which runs anywhere."
    if device.platform.kind != "gpu":
        return f"TF32 is of NVIDIA GPUs, and this is {device.platform.kind}. {remedy}"
    return f"{_gpu(device)} has no TF32. {remedy}" if _before_ampere(device) else None


def _bf16(framework: Framework, device: Device) -> str | None:
    """Return why float32 products cannot be taken of bfloat16 operands.

    Measured: with fp32_precision "bf16", oneDNN 3.12 on an AVX512_BF16 processor without AMX runs
    its float32 kernels (ONEDNN_VERBOSE: avx512_core), and PyTorch 2.14 reads back "none" for CUDA.
    XLA's precision DEFAULT is float32 on CPUs and TF32 on NVIDIA GPUs.
    """
    remedy = "Use --arithmetic amp-bf16 or emulate-bf16."
    kind = device.platform.kind
    if kind == "cpu" and framework == "torch":
        if device.platform.level is not None:
            return f"{device.platform.name} caps oneDNN below AMX, which bf16 needs. {remedy}"
        if device.cpu_flags is not None and "amx_bf16" not in device.cpu_flags:
            return (
                "oneDNN takes float32 products of bfloat16 operands only where the processor has "
                f"AMX (amx_bf16), which this one lacks. {remedy}"
            )
        return None
    if kind == "tpu":
        return None
    return f"{framework} takes no float32 products of bfloat16 operands on {kind}. {remedy}"


def _before_ampere(device: Device) -> bool:
    return device.capability is not None and device.capability < AMPERE


def _gpu(device: Device) -> str:
    assert device.capability is not None
    version = ".".join(map(str, device.capability))
    return f"{device.platform.name} (compute capability {version})"


def shortfall(mode: Arithmetic, product_bits: Mapping[str, int] | None) -> str | None:
    """Return in words how a device does less, or more, than the mode says; None if it does it.

    Args:
        mode: What was asked for.
        product_bits: Mantissa bits that products were seen to keep; None where nobody looked.
    """
    wanted = OPERAND_BITS.get(mode)
    if product_bits is None or wanted is None:
        return None
    other = {name: bits for name, bits in product_bits.items() if bits != wanted}
    if not other:
        return None
    seen = ", ".join(f"{name.replace('_', ' ')} {bits}" for name, bits in other.items())
    return (
        f"{mode} means operands of {wanted} mantissa bits, and this device keeps others: {seen}. "
        "The record says so too (product_bits)."
    )
