"""Lists of names on a command line: one argument, joined by commas."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo


def registry() -> "ConstructorRegistry":
    """Return the rule by which tyro reads a field of type tuple[str, ...]: `a,b` is ("a", "b")."""
    from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec

    def rule(info: "PrimitiveTypeInfo") -> "PrimitiveConstructorSpec[tuple[str, ...]] | None":
        if info.type != tuple[str, ...]:
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="NAME[,NAME...]",
            instance_from_str=lambda arguments: tuple(map(str.strip, arguments[0].split(","))),
            is_instance=lambda value: isinstance(value, tuple),
            str_from_instance=lambda names: [join(names)],
        )

    rules = ConstructorRegistry()
    rules.primitive_rule(rule)
    return rules


def join(names: tuple[str, ...]) -> str:
    """Return names as they are typed; "none" where there is no name."""
    return ",".join(names) or "none"
