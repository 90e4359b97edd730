from collections import Counter
from dataclasses import replace

import pytest

from parity import platforms
from parity.article import files
from parity.errors import UserError
from parity.study import design, planning
from parity.study.design import load, parse
from parity.study.local import arguments
from parity.study.planning import Choices, plan

ARTICLE = load("article")
SIX = ("RTX 3060", "RTX 5090", "A100", "L4", "T4", "TPU")


def planned(content, *, on=None, frameworks=("torch",), backend="local", **overrides):
    choices = Choices(frameworks=frameworks, on=on, overrides=overrides)
    return plan(parse({"name": "mine"} | content, "mine"), choices, backend)


def article_layout(runs_of=ARTICLE):
    """The recipe in the words of the article's files."""
    for block in runs_of.blocks:
        for device in block.devices:
            for levels in block.combinations():
                settings = runs_of.base | {"optimizer": "adam"} | levels
                arithmetic, group = settings["arithmetic"], block.group
                kind = {"baseline": "train", "configuration": "deterministic"}.get(group, group)
                for _ in range(block.repeats):
                    yield (
                        kind,
                        device,
                        settings["seed"],
                        settings["optimizer"],
                        settings["lr"],
                        arithmetic == "tf32",
                        arithmetic == "amp-bf16" and device == "TPU",
                        arithmetic == "amp-fp16",
                        settings.get("workers", 0),
                        settings.get("autotune"),
                        settings.get("deterministic"),
                    )


def test_the_article_is_laid_out_as_its_files_are(article_results):
    published = Counter()
    for path in sorted(article_results.glob("*.json")):
        f = files.read(path)
        # The TPU's optimizer files leave the workers out, which were 4.
        workers = 4 if (f.file_kind, f.device) == ("optimizer", "TPU") else f.workers
        settings = (f.seed, f.optimizer, f.lr, f.tf32, f.bf16, f.amp, workers)
        published[(f.file_kind, f.device, *settings, f.benchmark, f.deterministic)] += 1
    assert published.total() == 65
    assert Counter(article_layout()) == published


def test_the_article_is_65_runs_of_which_a_cpu_can_do_those_without_tf32_and_autotuning():
    runs = plan(ARTICLE, Choices(on=("cpu",)), "local")
    assert Counter(r.group for r in runs) == {"baseline": 16, "configuration": 31, "optimizer": 18}
    beyond = [r for r in runs if r.levels["arithmetic"] == "tf32" or r.levels.get("autotune")]
    assert [r for r in runs if r.config is None] == beyond
    assert {r.reason.partition(",")[0] for r in beyond} == {
        "TF32 is of NVIDIA GPUs",
        "--autotune lets cuDNN or XLA time kernels on an NVIDIA GPU",
    }
    assert all((r.config is None) == (r.reason is not None) for r in runs)
    both = plan(ARTICLE, Choices(on=("cpu",), frameworks=("torch", "jax")), "local")
    assert len(both) == 130


def test_a_t4_has_no_tf32_and_an_a100_has():
    runs = plan(ARTICLE, Choices(on=("gpu@T4", "gpu@A100", "tpu"), frameworks=("jax",)), "ray")
    reasons = {r.stands_for: r.reason for r in runs if r.levels["arithmetic"] == "tf32"}
    assert reasons["A100"] is None
    t4 = planned({"runs": [{"arithmetic": "tf32"}]}, on=("gpu@T4",), backend="ray")
    assert "capability 7.5) has no TF32" in t4[0].reason


def test_a_preset_is_applicable_where_its_settings_are():
    content = {"runs": [{"preset": ["deterministic", "balanced", "performance"]}]}
    runs = planned(content)
    assert [r.reason is None for r in runs] == [True, False, False]
    on_gpu = planned(content, on=("gpu@A100",), backend="ray")
    assert [r.config.arithmetic for r in on_gpu] == ["float32", "float32", "tf32"]


def test_no_two_planned_runs_share_a_folder():
    for name, on in (("article", ("cpu", "cpu:avx2")), ("ablation", None), ("smoke", None)):
        possible = [r for r in plan(load(name), Choices(on=on), "ray") if r.config is not None]
        assert len({r.folder for r in possible}) == len(possible) > 0


def test_runs_alike_are_numbered_in_the_order_of_the_design():
    runs = planned({"runs": [{"seed": [1, 2], "repeats": 2}, {"seed": 1}]})
    assert [(r.config.seed, r.repeat) for r in runs] == [(1, 1), (1, 2), (2, 1), (2, 2), (1, 3)]


def test_identity_is_what_is_computed_not_where_files_lie():
    (run,) = planned({"runs": [{"seed": 3}]})
    elsewhere = replace(run, config=replace(run.config, data_dir="/data", quiet=True))
    assert elsewhere.sha256 == run.sha256
    for change in (
        {"config": replace(run.config, seed=4)},
        {"config": replace(run.config, epochs=9)},
        {"config": replace(run.config, threads=1)},
        {"framework": "jax"},
        {"place": planning.Place("cpu:avx2")},
        {"place": planning.Place("cpu", "T4")},
        {"repeat": 2},
    ):
        assert replace(run, **change).sha256 != run.sha256
    gpus = [planned({"runs": [{}]}, on=(name,))[0] for name in ("gpu", "cuda", "gpu:0")]
    assert len({gpu.sha256 for gpu in gpus}) == 1


def test_the_hash_is_the_one_that_folders_of_earlier_versions_have():
    # Golden: sha256 of {"accelerator":null,"config":{"seed":3},"framework":"torch",
    # "platform":"cpu","repeat":1}, by sha256sum (coreutils); a new setting must not change it.
    (run,) = planned({"runs": [{"seed": 3}]})
    assert run.sha256 == "90cae1ac4ca15fa8cdc33c8becd6e5b882ddb5a25a18371a7c83c1b763bf8b80"
    assert run.folder == f"torch-cpu-cifar10-float32-adam-seed3-{run.sha256[:12]}"


def test_devices_of_the_user_stand_for_the_articles_in_turn():
    stand_ins = planning.places(ARTICLE, ("cpu", "cpu:avx2"), ("torch",), "ray")
    assert {name: str(place) for name, place in stand_ins.items()} == dict(
        zip(SIX, ("cpu", "cpu:avx2") * 3, strict=True)
    )


def test_a_device_stands_for_its_namesake_alone():
    stand_ins = planning.places(ARTICLE, ("gpu@T4", "tpu", "cpu"), ("torch", "jax"), "ray")
    named = {"T4": "gpu@T4", "TPU": "tpu"}
    assert {name: str(p) for name, p in stand_ins.items()} == {n: named.get(n, "cpu") for n in SIX}
    stand_ins = planning.places(ARTICLE, ("gpu@T4", "tpu"), ("torch", "jax"), "ray")
    assert {name for name, place in stand_ins.items() if place is None} == set(SIX) - set(named)
    runs = plan(ARTICLE, Choices(on=("gpu@T4", "tpu"), frameworks=("jax",)), "ray")
    assert {r.reason for r in runs if r.stands_for == "L4"} == {"No device of --on stands for L4."}


def test_devices_of_the_user_replace_those_of_a_design_that_runs_everywhere():
    runs = planned({"devices": ["cpu"], "runs": [{}]}, on=("gpu", "cpu"))
    assert [r.place.device for r in runs] == ["gpu", "cpu"]


def test_what_one_framework_lacks_is_not_applicable_there():
    runs = planned({"runs": [{}]}, on=("mps",), frameworks=("torch", "jax"))
    assert [r.config is None for r in runs] == [False, True]
    assert "--device mps is no platform of jax_impl" in runs[1].reason


def test_what_this_processor_lacks_is_not_applicable_here_and_may_be_elsewhere(monkeypatch):
    monkeypatch.setattr(platforms, "_cpuinfo", lambda key: "sse4_2")
    monkeypatch.setattr(platforms.host, "machine", lambda: "x86_64")
    (here,) = planned({"runs": [{}]}, on=("cpu:avx512",))
    (there,) = planned({"runs": [{}]}, on=("cpu:avx512",), backend="ray")
    assert "needs a processor with avx512" in here.reason
    assert there.reason is None


@pytest.mark.parametrize(
    ("on", "backend", "message"),
    [
        (("cpux",), "local", "--on cpux: .* is no platform .* Choose one of"),
        (("tpu",), "local", "--on tpu: .* is no platform of torch_impl"),
        (("gpu@T4",), "local", "only Ray looks for a T4. Add --backend ray, or say gpu"),
        (("gpu@",), "ray", "name an accelerator after @"),
        (("gpu:1",), "ray", "Say gpu"),
        (("cpu", "cpu"), "local", "names a device twice"),
    ],
)
def test_a_device_that_cannot_be_is_a_mistake(on, backend, message):
    with pytest.raises(UserError, match=message):
        planned({"runs": [{}]}, on=on, backend=backend)


def test_the_articles_devices_are_asked_for():
    with pytest.raises(UserError, match=r"names the devices RTX 3060, .* --on cpu,cpu:avx2"):
        plan(ARTICLE, Choices(), "local")


def test_an_override_replaces_the_base_but_never_a_factor():
    content = {"base": {"epochs": 5}, "runs": [{"seed": [1, 2]}]}
    assert {r.config.epochs for r in planned(content, epochs=2)} == {2}
    with pytest.raises(UserError, match="--seed would undo what mine varies"):
        planned(content, seed=3)


def test_a_value_without_sense_is_a_mistake():
    with pytest.raises(UserError, match="must be at least 1"):
        planned({"runs": [{"epochs": 0}]})
    with pytest.raises(UserError, match="arithmetic 'tf23' is none of"):
        planned({"runs": [{"arithmetic": "tf23"}]})
    assert design.recipes().keys() == {"ablation", "article", "smoke"}


def test_exact_operations_are_given_as_they_are_typed(tmp_path):
    design = parse({"name": "x", "runs": [{"exact_only": ["dot", "dot,softmax"], "seed": 1}]}, "x")
    runs = plan(design, Choices(frameworks=("torch",), on=("cpu",)), "local")
    given = [arguments(run, out=tmp_path, resume=False, threads=1, data_dir=None) for run in runs]
    assert [words[words.index("--exact-only") + 1] for words in given] == ["dot", "dot,softmax"]
    (usual,) = plan(parse({"name": "x", "runs": [{}]}, "x"), Choices(on=("cpu",)), "local")[:1]
    words = arguments(usual, out=tmp_path, resume=False, threads=1, data_dir=None)
    assert "--exact-only" not in words


def test_no_exact_operation_is_a_level_that_needs_no_float64():
    design = parse({"name": "x", "runs": [{"exact_only": ["none", "dot"]}]}, "x")
    none, dot = plan(design, Choices(frameworks=("jax",), on=("tpu",)), "ray")
    assert none.config is not None
    assert none.config.exact_only == ()
    assert dot.reason is not None
    assert "no IEEE float64" in dot.reason
