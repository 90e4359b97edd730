import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity import platforms
from parity.errors import UserError
from parity.platforms import LEVELS, Platform

FRAMEWORKS = ("jax", "torch")
DEVICES = [
    ("jax", "cpu", "cpu"),
    ("jax", "gpu", "gpu:0"),
    ("jax", "cuda", "gpu:0"),
    ("jax", "gpu:3", "gpu:3"),
    ("jax", "tpu", "tpu"),
    ("torch", "cpu", "cpu"),
    ("torch", "cuda:1", "gpu:1"),
    ("torch", "mps", "mps"),
    ("torch", "xla", "xla"),
]


@pytest.fixture
def processor(monkeypatch):
    """Make the machine an x86-64 processor with the given flags."""

    def become(flags: str, machine: str = "x86_64") -> None:
        monkeypatch.setattr(platforms, "_cpuinfo", {"flags": flags}.get)
        monkeypatch.setattr(platforms.host, "machine", lambda: machine)

    return become


@pytest.mark.parametrize(("framework", "device", "name"), DEVICES)
def test_a_device_has_one_canonical_name_which_means_itself(framework, device, name):
    platform = platforms.parse(device, framework)
    assert platform.name == name
    assert platforms.parse(name, framework) == platform


@pytest.mark.parametrize("level", LEVELS)
def test_an_instruction_set_is_a_platform_where_the_processor_has_it(processor, level):
    processor("fpu sse4_2 avx2 fma avx512f avx512bw")
    assert platforms.parse(f"cpu:{level}", "jax") == Platform("cpu", level=level)


@pytest.mark.parametrize(
    "device",
    ["", "npu", "CPU", "cpu:", "cpu:sse5", "cpu:0", "gpu:", "gpu:-1", "gpu:x", "gpu:1:2", ":cpu"],
)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_unknown_device_is_told_the_choices(framework, device):
    with pytest.raises(UserError) as raised:
        platforms.parse(device, framework)
    message = str(raised.value)
    assert message.startswith(f"--device {device} is no platform of {framework}_impl.")
    for choice in ("cpu", "cpu:sse4", "cpu:avx2", "cpu:avx512", "gpu (or cuda)"):
        assert choice in message


@pytest.mark.parametrize(
    ("framework", "device", "own"),
    [("jax", "mps", "tpu"), ("jax", "xla", "tpu"), ("torch", "tpu", "mps, xla")],
)
def test_the_other_frameworks_device_is_no_choice(framework, device, own):
    with pytest.raises(UserError, match=rf"gpu:1, {own}\.$"):
        platforms.parse(device, framework)


def test_a_missing_instruction_set_is_named_with_what_there_is(processor):
    processor("fpu sse4_2 avx2 fma")
    with pytest.raises(UserError, match="with avx512bw, avx512f, which") as raised:
        platforms.parse("cpu:avx512", "torch")
    assert str(raised.value).endswith("Choose cpu, cpu:sse4, cpu:avx2.")


def test_a_processor_without_any_of_them_is_offered_the_plain_cpu(processor):
    processor("fpu sse2")
    with pytest.raises(UserError, match=r"Choose cpu\.$"):
        platforms.parse("cpu:sse4", "torch")


@pytest.mark.parametrize("machine", ["aarch64", "arm64"])
def test_an_arm_machine_has_no_x86_instruction_set(processor, machine):
    processor("", machine)
    assert platforms.parse("cpu", "jax") == Platform("cpu")
    with pytest.raises(UserError, match=rf"this is {machine}\. Use --device cpu\.$"):
        platforms.parse("cpu:avx2", "jax")


def test_a_processor_that_tells_nothing_is_believed(processor):
    processor("")
    assert platforms.parse("cpu:avx512", "torch").level == "avx512"


def test_every_platform_gets_its_threads():
    for platform in (Platform("cpu"), Platform("gpu"), Platform("tpu"), Platform("mps")):
        values = platforms.variables(platform, 3)
        assert {"OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "3", "NPROC": "3"}.items() <= (
            values.items()
        )


@pytest.mark.parametrize("level", LEVELS)
def test_an_instruction_set_caps_every_library(level):
    values = platforms.variables(Platform("cpu", level=level), 1)
    libraries = {"ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS"}
    assert libraries | {"XLA_FLAGS"} <= set(values)
    assert "xla_cpu_max_isa" in values["XLA_FLAGS"]


def test_a_whole_cpu_is_not_capped():
    assert not {"ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "XLA_FLAGS"} & set(
        platforms.variables(Platform("cpu"), 1)
    )


def test_a_gpu_is_made_deterministic_without_tf32():
    values = platforms.variables(Platform("gpu"), 1)
    assert values["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert values["NVIDIA_TF32_OVERRIDE"] == "0"
    assert "--xla_gpu_deterministic_ops=true" in values["XLA_FLAGS"]


def test_jax_claims_no_accelerator_for_a_cpu_and_finds_any_for_others():
    assert platforms.variables(Platform("cpu"), 1)["JAX_PLATFORMS"] == "cpu"
    # JAX_PLATFORMS=cuda of the user's would end --device tpu in a traceback, and the other way.
    assert platforms.variables(Platform("tpu"), 1)["JAX_PLATFORMS"] == ""


@pytest.fixture
def fresh(monkeypatch):
    """Pretend that no framework is loaded and return the environment, empty."""
    for name in FRAMEWORKS:
        monkeypatch.delitem(sys.modules, name, raising=False)
    environment: dict[str, str] = {}
    monkeypatch.setattr(platforms.os, "environ", environment)
    return environment


def test_the_users_xla_flags_are_kept_and_ours_come_last(fresh):
    fresh["XLA_FLAGS"] = "--xla_dump_to=/tmp/x --xla_cpu_max_isa=AVX"
    platforms.enter(Platform("cpu", level="avx2"), 2)
    assert fresh["XLA_FLAGS"] == (
        "--xla_dump_to=/tmp/x --xla_cpu_max_isa=AVX --xla_cpu_max_isa=AVX2"
    )
    assert fresh["OMP_NUM_THREADS"] == "2"


def test_the_users_xla_flags_are_left_alone_on_a_whole_cpu(fresh):
    fresh["XLA_FLAGS"] = "--xla_dump_to=/tmp/x"
    platforms.enter(Platform("cpu"), 2)
    assert fresh["XLA_FLAGS"] == "--xla_dump_to=/tmp/x"


def test_without_flags_of_the_users_ours_stand_alone(fresh):
    platforms.enter(Platform("cpu", level="sse4"), 2)
    assert fresh["XLA_FLAGS"] == "--xla_cpu_max_isa=SSE4_2"


def test_an_environment_that_comes_too_late_is_our_mistake(fresh, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", sys)
    with pytest.raises(AssertionError, match="loaded already"):
        platforms.enter(Platform("cpu"), 2)


def test_what_can_change_the_numerics_is_recorded_and_nothing_else():
    environment = {
        "XLA_FLAGS": "a",
        "OMP_NUM_THREADS": "b",
        "NVIDIA_TF32_OVERRIDE": "c",
        "NPROC": "d",
        "HOME": "/root",
        "API_TOKEN": "secret",
        "NVIDIA_API_KEY": "secret",
        "XLARGE": "no",
        "MY_TORCH_TOKEN": "secret",
    }
    recorded = platforms.recorded_variables(environment)
    assert list(recorded) == ["NPROC", "NVIDIA_TF32_OVERRIDE", "OMP_NUM_THREADS", "XLA_FLAGS"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_every_variable_that_we_set_is_recorded(framework, device):
    values = platforms.variables(platforms.parse(device, framework), 1)
    assert platforms.recorded_variables(values) == dict(sorted(values.items()))


@given(st.dictionaries(st.text(max_size=12), st.text(max_size=3)))
def test_recording_invents_nothing(environment):
    assert platforms.recorded_variables(environment).items() <= environment.items()


def test_threads_are_the_cores_of_this_process_not_of_the_machine(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 7, 8}, raising=False)
    assert platforms.available_threads() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    assert platforms.available_threads() == 5


def test_a_fingerprint_is_json_and_names_versions_and_variables(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/tmp/x")
    found = platforms.fingerprint(Platform("cpu", level="avx2"), 2, ("safetensors",))
    assert json.loads(json.dumps(found)) == found
    assert found["platform"] == "cpu:avx2"
    assert found["threads"] == 2
    assert set(found["versions"]) == {"numpy", "safetensors"}
    assert found["variables"]["XLA_FLAGS"] == "--xla_dump_to=/tmp/x"


def test_a_package_that_is_not_there_is_not_passed_over():
    with pytest.raises(PackageNotFoundError):
        platforms.fingerprint(Platform("cpu"), 1, ("no-such-package-here",))


def test_the_commit_is_none_outside_of_this_codes_checkout(monkeypatch, tmp_path):
    monkeypatch.setattr(platforms, "__file__", str(tmp_path / "platforms.py"))
    assert platforms.fingerprint(Platform("cpu"), 1, ())["git_commit"] is None


@pytest.fixture
def checkout(monkeypatch, tmp_path):
    """Return a checkout that holds a copy of the module, committed."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    monkeypatch.setattr(platforms, "__file__", str(tmp_path / "platforms.py"))
    (tmp_path / "platforms.py").write_text("1\n")
    person = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    for command in (["init", "-q"], ["add", "."], [*person, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    return tmp_path


def test_a_changed_file_is_marked_beside_the_commit(checkout):
    commit = platforms.fingerprint(Platform("cpu"), 1, ())["git_commit"]
    assert re.fullmatch(r"[0-9a-f]{40}", commit)
    (checkout / "platforms.py").write_text("2\n")
    assert platforms.fingerprint(Platform("cpu"), 1, ())["git_commit"] == f"{commit}+"


@pytest.mark.parametrize(
    ("script", "version"),
    [
        (None, None),
        ("echo 550.54.14; echo 550.54.14", "550.54.14"),
        ("echo No devices were found >&2; exit 6", None),
        ("exit 0", None),
    ],
)
def test_the_driver_is_what_nvidia_smi_says_or_none(monkeypatch, tmp_path, script, version):
    monkeypatch.setenv("PATH", str(tmp_path))
    if script is not None:
        tool = tmp_path / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
    assert platforms.nvidia_driver() == version


def test_a_gpus_kernels_are_said_before_the_framework_loads(fresh):
    fresh |= {"NVIDIA_TF32_OVERRIDE": "0", "CUBLAS_WORKSPACE_CONFIG": ":16:8"}
    platforms.enter(
        Platform("gpu"), 1, platforms.Kernels(deterministic=False, autotune=True, tf32=True)
    )
    assert not {"NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG"} & set(fresh)
    assert fresh["XLA_FLAGS"] == (
        "--xla_gpu_deterministic_ops=false --xla_gpu_exclude_nondeterministic_ops=false "
        "--xla_gpu_autotune_level=4"
    )


def test_autotuning_among_deterministic_kernels_is_not_turned_off_by_asking_for_them():
    flags = platforms.Kernels(autotune=True).variables()["XLA_FLAGS"]
    assert flags == "--xla_gpu_exclude_nondeterministic_ops=true --xla_gpu_autotune_level=4"


@pytest.mark.parametrize(
    ("answer", "capability"), [("7.5", (7, 5)), ("12.0", (12, 0)), ("N/A", None), (None, None)]
)
def test_a_gpus_capability_is_what_nvidia_smi_says_or_none(monkeypatch, answer, capability):
    monkeypatch.setattr(platforms, "_nvidia_smi", lambda *query: answer)
    assert platforms.gpu_capability(0) == capability
