"""Settings as they are typed on a command line."""

from collections.abc import Mapping


def flags(settings: Mapping[str, object]) -> list[str]:
    """Return a train command's flags; a setting without a value (None, an empty list) has none.

    >>> flags({"batch_size": 32, "exact_only": ["dot", "softmax"], "quiet": True, "out": None})
    ['--batch-size', '32', '--exact-only', 'dot,softmax', '--quiet']
    """
    return [word for name, value in settings.items() for word in _words(name, value)]


def _words(name: str, value: object) -> tuple[str, ...]:
    flag = name.replace("_", "-")
    if value is None or value == []:
        return ()
    if isinstance(value, bool):
        return (f"--{flag}" if value else f"--no-{flag}",)
    return f"--{flag}", ",".join(value) if isinstance(value, list) else str(value)
