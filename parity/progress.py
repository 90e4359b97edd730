"""What a run shows while it goes: a bar in a terminal, a line an epoch elsewhere, or nothing."""

import time
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from parity.console import console
from parity.runs import Epoch


class Monitor(Protocol):
    """Hears of every step and epoch."""

    def print(self, line: str) -> None:
        """Show a line."""
        ...

    def steps(
        self, *, epoch: int, loss: float, accuracy: float, num_images: int, num_steps: int
    ) -> None:
        """Note training steps: the last loss in nats, the epoch's accuracy so far in percent."""
        ...

    def epoch(self, figures: Epoch) -> None:
        """Note a finished epoch."""
        ...

    def close(self) -> None:
        """Leave the screen in order."""
        ...


class Silent:
    """Shows nothing."""

    def print(self, line: str) -> None:
        """See Monitor."""

    def steps(
        self, *, epoch: int, loss: float, accuracy: float, num_images: int, num_steps: int
    ) -> None:
        """See Monitor."""

    def epoch(self, figures: Epoch) -> None:
        """See Monitor."""

    def close(self) -> None:
        """See Monitor."""


class Lines:
    """Prints one line an epoch, with the time left by the epochs that this process has done."""

    def __init__(self, screen: Console, *, num_epochs: int, first_epoch: int) -> None:
        self._console = screen
        self._num_epochs = num_epochs
        self._first_epoch = first_epoch
        self._begin = time.monotonic()

    def print(self, line: str) -> None:
        """See Monitor."""
        # soft_wrap: a path that is cut into lines is no path.
        self._console.print(line, soft_wrap=True)

    def steps(
        self, *, epoch: int, loss: float, accuracy: float, num_images: int, num_steps: int
    ) -> None:
        """See Monitor."""

    def epoch(self, figures: Epoch) -> None:
        """See Monitor."""
        done = figures.epoch - self._first_epoch + 1
        left = (time.monotonic() - self._begin) / done * (self._num_epochs - figures.epoch)
        self.print(
            f"epoch {figures.epoch:2d}/{self._num_epochs}"
            f"  train loss {figures.train_loss:.4f}  accuracy {figures.train_accuracy:5.2f} %"
            f"  test loss {figures.test_loss:.4f}  accuracy {figures.test_accuracy:5.2f} %"
            f"  {duration(left)} left"
        )

    def close(self) -> None:
        """See Monitor."""


class Bar:
    """Draws a bar over all steps, below one line an epoch."""

    def __init__(
        self, screen: Console, *, num_epochs: int, first_epoch: int, steps_per_epoch: int
    ) -> None:
        self._lines = Lines(screen, num_epochs=num_epochs, first_epoch=first_epoch)
        self._num_epochs = num_epochs
        self._progress = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=screen,
            expand=True,
        )
        self._task = self._progress.add_task(
            "",
            total=num_epochs * steps_per_epoch,
            completed=(first_epoch - 1) * steps_per_epoch,
            epoch=f"{first_epoch}/{num_epochs}",
            figures="first step",
        )
        self._last = time.monotonic()
        self._progress.start()

    def print(self, line: str) -> None:
        """See Monitor."""
        self._lines.print(line)

    def steps(
        self, *, epoch: int, loss: float, accuracy: float, num_images: int, num_steps: int
    ) -> None:
        """See Monitor."""
        now = time.monotonic()
        rate, self._last = num_images / max(now - self._last, 1e-9), now
        self._progress.update(
            self._task,
            advance=num_steps,
            epoch=f"{epoch}/{self._num_epochs}",
            figures=f"loss {loss:.4f}  accuracy {accuracy:5.2f} %  {rate:,.0f} images/s",
        )

    def epoch(self, figures: Epoch) -> None:
        """See Monitor."""
        self._lines.epoch(figures)
        self._last = time.monotonic()

    def close(self) -> None:
        """See Monitor."""
        self._progress.stop()


def monitor(*, quiet: bool, num_epochs: int, first_epoch: int, steps_per_epoch: int) -> Monitor:
    """Return what suits the place: nothing if quiet, a bar in a terminal, lines elsewhere."""
    if quiet:
        return Silent()
    screen = console()
    if not screen.is_terminal:
        return Lines(screen, num_epochs=num_epochs, first_epoch=first_epoch)
    return Bar(
        screen, num_epochs=num_epochs, first_epoch=first_epoch, steps_per_epoch=steps_per_epoch
    )


def duration(seconds: float) -> str:
    """Return "45 s", "3 min" or "2 h 05 min"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
