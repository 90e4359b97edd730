"""A design: which runs a study has, as data in a TOML file.

    name = "mine"
    frameworks = ["torch", "jax"]        # default: both
    devices = ["cpu", "cpu:avx2"]        # for runs that name none; default: cpu

    [base]                               # settings of every run; default: the train commands'
    dataset = "digits"

    [[runs]]                             # every combination of the levels, so often
    optimizer = ["adam", "sgd"]
    seed = [1, 2, 3]
    repeats = 2
    group = "any label"

A setting is a field of TrainConfig.
"""

import itertools
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from importlib import resources
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from parity.config import TrainConfig
from parity.errors import UserError
from parity.platforms import KINDS, Framework

PLACE = ("device", "data_dir", "data_source", "out", "resume", "quiet")
"""Fields of TrainConfig that say where a run computes and where its files lie, not what it is."""

SETTINGS = tuple(f.name for f in fields(TrainConfig) if f.name not in PLACE)
"""Fields of TrainConfig that a design can set."""

_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}


@dataclass(frozen=True, kw_only=True)
class Block:
    """Every combination of some levels."""

    group: str
    repeats: int
    devices: tuple[str, ...]
    """The design's names of devices; empty for those of the study."""
    factors: dict[str, tuple[Any, ...]]
    """Levels by setting; one level for what does not vary."""

    def combinations(self) -> Iterator[dict[str, Any]]:
        """Yield settings, the last factor varying fastest."""
        for levels in itertools.product(*self.factors.values()):
            yield dict(zip(self.factors, levels, strict=True))


@dataclass(frozen=True, kw_only=True)
class Design:
    """What a study consists of."""

    name: str
    about: str
    frameworks: tuple[Framework, ...]
    devices: tuple[str, ...]
    """The devices that its runs name, or that all its runs run on."""
    devices_vary: bool
    """Whether a run names its device, so that other devices take the places of these."""
    base: dict[str, Any]
    blocks: tuple[Block, ...]
    content: dict[str, Any]
    """What the file holds, as it is."""


def recipes() -> dict[str, str]:
    """Return the text of the built-in designs by name."""
    folder = resources.files("parity.study") / "recipes"
    files = [file for file in folder.iterdir() if file.name.endswith(".toml")]
    return {f.name.removesuffix(".toml"): f.read_text() for f in sorted(files, key=str)}


def load(name_or_file: str) -> Design:
    """Return a built-in design, or the one in a TOML file.

    Raises:
        UserError: If there is neither, or it is no design; names the place in the file.
    """
    text, source = recipes().get(name_or_file), name_or_file
    if text is None:
        path = Path(name_or_file)
        if path.suffix != ".toml":
            raise UserError(
                f"There is no design {name_or_file}. Choose one of {', '.join(recipes())}, or "
                "give a file that ends in .toml."
            )
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"{path} cannot be read ({reason}). Give another file.") from None
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{source} is no TOML: {error}. Correct it there.") from None
    return parse(content, source)


def parse(content: Mapping[str, Any], source: str) -> Design:
    """Return the design that a file holds.

    Args:
        content: The parsed file.
        source: How messages call it.

    Raises:
        UserError: If a key is unknown, a value of another type, or a list empty.
    """
    try:
        return _parse(dict(content))
    except UserError as error:
        raise UserError(f"{source}: {error}") from None


def _parse(content: dict[str, Any]) -> Design:
    # The content is kept in JSON, which has no dates and no NaN.
    try:
        json.dumps(content, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UserError(f"{error}. Use strings, finite numbers, true and false.") from None
    known = ("name", "about", "frameworks", "devices", "base", "runs")
    _refuse_unknown(content, known, "the design")
    name, about = _typed(content, "name", str, ""), _typed(content, "about", str, "")
    if not name or not name.replace("-", "").replace("_", "").isalnum():
        raise UserError(
            f"name is {name!r}, but names a folder. Use letters, digits, - and _ in it."
        )
    frameworks = _levels("frameworks", content.get("frameworks", list(KINDS)), str)
    for framework in frameworks:
        if framework not in KINDS:
            raise UserError(f"frameworks holds {framework!r}. Choose from {', '.join(KINDS)}.")
    base = _typed(content, "base", dict, {})
    _refuse_unknown(base, SETTINGS, "[base]")
    for key, value in base.items():
        _levels(f"base.{key}", [value], *_types(key))
    tables = _typed(content, "runs", list, [])
    if not tables:
        raise UserError("it has no runs. Add at least one [[runs]], which may be empty.")
    blocks = tuple(_block(table, number, name) for number, table in enumerate(tables, start=1))
    named = tuple(dict.fromkeys(device for block in blocks for device in block.devices))
    if named and ("devices" in content or not all(block.devices for block in blocks)):
        raise UserError(
            "some runs name a device and others take those of the study. "
            "Give each [[runs]] its device, or none of them and `devices` at the top."
        )
    return Design(
        name=name,
        about=about,
        frameworks=frameworks,
        devices=named or _levels("devices", content.get("devices", ["cpu"]), str),
        devices_vary=bool(named),
        base=base,
        blocks=blocks,
        content=content,
    )


def _block(table: Any, number: int, name: str) -> Block:
    where = f"[[runs]] number {number}"
    if not isinstance(table, dict):
        raise UserError(f"{where} is {table!r}. Write it as a table, under [[runs]].")
    _refuse_unknown(table, ("group", "repeats", "device", *SETTINGS), where)
    repeats = _typed(table, "repeats", int, 1)
    if repeats < 1:
        raise UserError(f"{where}: repeats is {repeats}, but must be at least 1.")
    devices = table.get("device", [])
    return Block(
        group=_typed(table, "group", str, name),
        repeats=repeats,
        devices=_levels(f"{where}: device", devices, str) if "device" in table else (),
        factors={
            key: _levels(f"{where}: {key}", value, *_types(key))
            for key, value in table.items()
            if key not in ("group", "repeats", "device")
        },
    )


def _refuse_unknown(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    unknown = [key for key in table if key not in known]
    if unknown:
        raise UserError(
            f"{where} has {', '.join(unknown)}, which means nothing there. "
            f"Known: {', '.join(known)}."
        )


def _types(setting: str) -> tuple[type, ...]:
    """Return the types that a setting's value can have in TOML."""
    hint = get_type_hints(TrainConfig)[setting]
    if get_origin(hint) is tuple:
        return (str,)  # joined by commas, as on the command line: a list holds levels
    options = (hint,) if get_origin(hint) is Literal else get_args(hint) or (hint,)
    types = tuple(t for t in options if t is not NoneType)
    return tuple(str if get_origin(t) is Literal or t is Path else t for t in types)


def _levels(name: str, value: Any, *types: type) -> tuple[Any, ...]:
    """Return a factor's levels: a list's values, or a value alone."""
    levels = value if isinstance(value, list) else [value]
    if not levels:
        raise UserError(f"{name} is empty. Give at least one value, or leave it out.")
    for level in levels:
        if not _is_a(level, types):
            wanted = " or ".join(_KINDS[t] for t in types)
            raise UserError(f"{name} is {level!r}, but must be {wanted}.")
    if len(set(levels)) < len(levels):
        raise UserError(f"{name} names a value twice: {levels}. To run it twice, use repeats = 2.")
    return tuple(levels)


def _typed(table: Mapping[str, Any], name: str, kind: Any, default: Any) -> Any:
    value = table.get(name, default)
    if not _is_a(value, (kind,)):
        wanted = {dict: "a table", list: "an array of tables"}.get(kind) or _KINDS[kind]
        raise UserError(f"{name} is {value!r}, but must be {wanted}.")
    return value


def _is_a(value: Any, types: tuple[type, ...]) -> bool:
    # bool is an int to Python, and an int will do where a float is meant.
    if isinstance(value, bool):
        return bool in types
    return isinstance(value, types) or (isinstance(value, int) and float in types)
