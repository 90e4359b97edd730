import pytest

from parity.config import TrainConfig
from parity.errors import UserError
from parity.study import design

MINIMAL = {"name": "mine", "runs": [{}]}


def load(tmp_path, text: str) -> design.Design:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    return design.load(str(file))


def test_a_minimal_design_is_one_run_in_both_frameworks_on_the_cpu():
    parsed = design.parse(MINIMAL, "mine")
    assert (parsed.frameworks, parsed.devices) == (("jax", "torch"), ("cpu",))
    assert [list(block.combinations()) for block in parsed.blocks] == [[{}]]


def test_every_combination_of_levels_is_a_run(tmp_path):
    parsed = load(tmp_path, 'name = "x"\n[[runs]]\nseed = [1, 2]\noptimizer = ["adam", "sgd"]')
    assert list(parsed.blocks[0].combinations()) == [
        {"seed": 1, "optimizer": "adam"},
        {"seed": 1, "optimizer": "sgd"},
        {"seed": 2, "optimizer": "adam"},
        {"seed": 2, "optimizer": "sgd"},
    ]


def test_every_setting_of_a_run_is_known_with_its_types():
    for name in design.SETTINGS:
        value = getattr(TrainConfig(), name)
        if value is not None:
            assert design._types(name) == (str if value == () else type(value),)
    assert design._types("train_size") == (int,)
    assert design._types("init_weights") == (str,)


def test_a_whole_number_will_do_for_a_learning_rate(tmp_path):
    assert load(tmp_path, 'name = "x"\n[[runs]]\nlr = 1').blocks[0].factors == {"lr": (1,)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = 3 4", r"mine.toml is no TOML: .*line 1.* Correct it there"),
        ("[[runs]]", "name is ''"),
        ('name = "../x"\n[[runs]]', "Use letters"),
        ('name = "x"', r"Add at least one \[\[runs\]\]"),
        ('name = "x"\nruns = 3', "runs is 3, but must be an array of tables"),
        ('name = "x"\nruns = [3]', r"\[\[runs\]\] number 1 is 3"),
        ('name = "x"\nspeed = 1\n[[runs]]', "the design has speed, which means nothing"),
        ('name = "x"\n[base]\nsped = 1\n[[runs]]', r"\[base\] has sped"),
        ('name = "x"\n[[runs]]\n[[runs]]\nsped = 1', r"\[\[runs\]\] number 2 has sped"),
        ('name = "x"\n[[runs]]\nout = "a"', "number 1 has out"),
        ('name = "x"\n[[runs]]\nseed = "1"', "seed is '1', but must be a whole number"),
        ('name = "x"\n[[runs]]\nseed = [1, true]', "seed is True, but must be a whole number"),
        ('name = "x"\n[[runs]]\nautotune = 1', "autotune is 1, but must be true or false"),
        ('name = "x"\n[base]\nseed = [1, 2]\n[[runs]]', r"base.seed is \[1, 2\], but must be"),
        ('name = "x"\n[[runs]]\nseed = []', "seed is empty. Give at least one value"),
        ('name = "x"\n[[runs]]\nseed = [1, 1]', "use repeats = 2"),
        ('name = "x"\n[[runs]]\nrepeats = 0', "must be at least 1"),
        ('name = "x"\n[[runs]]\nrepeats = 1.5', "repeats is 1.5, but must be a whole number"),
        ('name = "x"\nframeworks = ["keras"]\n[[runs]]', "Choose from jax, torch"),
        ('name = "x"\nframeworks = []\n[[runs]]', "frameworks is empty"),
        ('name = "x"\ndevices = []\n[[runs]]', "devices is empty"),
        ('name = "x"\n[[runs]]\ndevice = []', "device is empty"),
        ('name = "x"\n[[runs]]\ndevice = "cpu"\n[[runs]]', "some runs name a device"),
        ('name = "x"\n[[runs]]\nlr = nan', "Use strings, finite numbers"),
        ('name = "x"\nabout = 2026-01-01\n[[runs]]', "Use strings, finite numbers"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        load(tmp_path, text)


def test_what_is_no_design_is_refused(tmp_path):
    with pytest.raises(UserError, match="Choose one of ablation, article, smoke"):
        design.load("artikel")
    with pytest.raises(UserError, match="cannot be read"):
        design.load(str(tmp_path / "none.toml"))
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    with pytest.raises(UserError, match="cannot be read"):
        design.load(str(tmp_path / "bytes.toml"))
