"""What a study shows while it goes: a bar in a terminal, a line a run elsewhere."""

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from parity.console import console
from parity.progress import duration
from parity.study.folder import Attempt
from parity.study.planning import PlannedRun
from parity.study.scheduling import Outcome


class Lines:
    """Prints one line for each run that ends."""

    def __init__(self, screen: Console, *, num_runs: int) -> None:
        self._screen = screen
        self._num_runs = num_runs
        self._left = ""
        self.num_finished = 0
        self.num_failed = 0

    def began(self, run: PlannedRun, attempt: Attempt) -> None:
        """See scheduling.Display."""

    def ended(self, run: PlannedRun, outcome: Outcome) -> None:
        """See scheduling.Display."""
        self.num_finished += outcome.finished
        self.num_failed += not outcome.finished
        if outcome.finished and outcome.seconds is None:
            return  # before we came, or in another study
        count = f"{self.num_finished + self.num_failed}/{self._num_runs}"
        word = "finished" if outcome.finished else "FAILED  "
        took = "" if outcome.seconds is None else f"  {duration(outcome.seconds)}"
        self._screen.print(f"{count:>7}  {word}  {run}{took}{self._left}", soft_wrap=True)
        for line in outcome.last_lines:
            self._screen.print(f"         | {line}", soft_wrap=True)

    def tick(self, *, running: int, seconds_left: float | None) -> None:
        """See scheduling.Display."""
        self._left = "" if seconds_left is None else f"  {duration(seconds_left)} left"

    def close(self) -> None:
        """Leave the screen in order."""


class Bar(Lines):
    """Draws a bar over all runs, below the lines."""

    def __init__(self, screen: Console, *, num_runs: int) -> None:
        super().__init__(screen, num_runs=num_runs)
        self._progress = Progress(
            TextColumn("{task.fields[counts]}"),
            BarColumn(bar_width=None),
            TextColumn("{task.completed:.0f}/{task.total:.0f}  {task.fields[left]}"),
            console=screen,
            expand=True,
        )
        self._task = self._progress.add_task("", total=num_runs, counts="", left="")
        self._progress.start()

    def tick(self, *, running: int, seconds_left: float | None) -> None:
        """See scheduling.Display."""
        left = (
            "time left not known yet" if seconds_left is None else f"{duration(seconds_left)} left"
        )
        self._progress.update(
            self._task,
            completed=self.num_finished + self.num_failed,
            counts=f"{self.num_finished} finished, {self.num_failed} failed, {running} running",
            left=left,
        )

    def close(self) -> None:
        """Leave the screen in order."""
        self._progress.stop()


def display(*, num_runs: int) -> Lines:
    """Return what suits the place: a bar in a terminal, lines elsewhere."""
    screen = console()
    return (Bar if screen.is_terminal else Lines)(screen, num_runs=num_runs)
