"""Groups of the user's runs beside the article's devices."""

from collections.abc import Iterator

from rich.console import RenderableType

from parity.article.beside import Beside
from parity.comparison import Comparison
from parity.tables.notation import MAX_ROWS, figure, heading, left_out, letters, narrow_table

MAX_GROUPS = 6
"""Groups shown as columns."""


def published(comparison: Comparison) -> Iterator[RenderableType]:
    """Yield the article's devices with how far each group lies from them, if asked for."""
    found = comparison.published
    if found is None:
        return
    yield heading("Beside the article's devices")
    beside = [entry for entry in found.groups if not entry.reasons]
    if not found.groups:
        yield "No run is finished: there is no group to set beside them."
    if beside:
        yield (
            "The article's runs had other random streams and other initial weights, PyTorch alone, "
            "and one seed: final accuracies may be called equivalent within a margin, never close "
            "or bitwise. A difference is no evidence of hardware."
        )
    shown = beside[:MAX_GROUPS]
    for optimizer in dict.fromkeys(entry.optimizer for entry in shown):
        yield from _devices(comparison, [e for e in shown if e.optimizer == optimizer])
    yield from left_out(len(shown), len(beside), "groups")
    apart = [entry for entry in found.groups if entry.reasons]
    for entry in apart[:MAX_ROWS]:
        why = "; ".join(entry.reasons)
        yield f"Group {letters(entry.group)} is not comparable with them: {why}."
    yield from left_out(MAX_ROWS, len(apart), "groups")


def _devices(comparison: Comparison, groups: list[Beside]) -> Iterator[RenderableType]:
    assert comparison.published is not None
    optimizer = groups[0].optimizer
    devices = [d for d in comparison.published.devices if d.optimizer == optimizer]
    rows = narrow_table(
        *(f"the article's {optimizer}", ">n", ">mean, %", ">std, pp"),
        *(f">{letters(entry.group)} - it, pp" for entry in groups),
    )
    for number, device in enumerate(devices):
        rows.add_row(
            device.device,
            str(device.num_runs),
            figure(device.mean, 3),
            figure(device.std, 3) if device.num_runs > 1 else "-",
            *(f"{entry.differences[number]:+.3f}" for entry in groups),
        )
    rows.add_row("all", "", "", "", *(f"{entry.difference:+.3f}" for entry in groups))
    yield rows
    for entry in groups:
        between = entry.equivalence
        yield f"Group {letters(entry.group)} and all: " + (
            "one run has no spread to judge a margin by."
            if between is None
            else f"equivalent within ±{between.margin:.2f} pp (90 % CI [{between.low:+.2f}, "
            f"{between.high:+.2f}], Welch's, runs taken as independent)."
        )
