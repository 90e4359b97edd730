"""Lists of names on a command line: one argument, joined by commas."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args, get_origin

from parity.errors import UserError

if TYPE_CHECKING:
    from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo


def registry() -> "ConstructorRegistry":
    """Return the rule by which tyro reads a field of type tuple[str, ...]: `a,b` is ("a", "b")."""
    from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec

    def rule(info: "PrimitiveTypeInfo") -> "PrimitiveConstructorSpec[tuple[str, ...]] | None":
        # Not by ==: of a default of two names tyro makes typing.Tuple[str, ...], which is unequal.
        if (get_origin(info.type), get_args(info.type)) != (tuple, (str, ...)):
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="NAME[,NAME...]",
            instance_from_str=lambda arguments: split(arguments[0]),
            is_instance=lambda value: isinstance(value, tuple),
            str_from_instance=lambda names: [join(names)],
        )

    rules = ConstructorRegistry()
    rules.primitive_rule(rule)
    return rules


def refuse_repeats(flag: str, arguments: Sequence[str]) -> None:
    """Refuse a list that is given in parts, of which only the last would count.

    Raises:
        UserError: Says how to write it.
    """
    typed = [argument.partition("=")[0].replace("_", "-") for argument in arguments]
    if typed.count(flag) > 1:
        raise UserError(
            f"{flag} is given {typed.count(flag)} times. Give it once, the names joined by commas."
        )


def split(text: str) -> tuple[str, ...]:
    """Return the names that `join` wrote, or that were typed with blanks around commas."""
    return () if text == "none" else tuple(map(str.strip, text.split(",")))


def join(names: tuple[str, ...]) -> str:
    """Return names as they are typed; "none" where there is no name."""
    return ",".join(names) or "none"
