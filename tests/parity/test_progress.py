import io
import threading

import pytest
from rich.console import Console

from parity import progress
from parity.console import WIDTH
from parity.runs import Epoch

FIGURES = {
    "train_loss": 1.23456,
    "train_accuracy": 55.555,
    "test_loss": 0.98765,
    "test_accuracy": 66.0,
    "weights_sha256": "ab" * 32,
    "train_seconds": 1.0,
    "test_seconds": 0.1,
    "step_losses": "3f800000",
}


def figures(number: int) -> Epoch:
    return Epoch(epoch=number, **FIGURES)


@pytest.fixture
def clock(monkeypatch):
    """Return a list whose last element is the time."""
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[-1])
    return now


@pytest.fixture
def screen(monkeypatch):
    """Make the console print into a buffer, as a terminal or not, and return that buffer."""

    def open_screen(*, terminal: bool) -> io.StringIO:
        buffer = io.StringIO()
        width = 80 if terminal else WIDTH
        console = Console(
            file=buffer, force_terminal=terminal, width=width, highlight=False, markup=False
        )
        monkeypatch.setattr(progress, "console", lambda: console)
        return buffer

    return open_screen


def run(monitor: progress.Monitor, epochs, num_steps: int = 3) -> None:
    monitor.print("hello")
    for number in epochs:
        for _ in range(num_steps):
            monitor.steps(epoch=number, loss=2.0, accuracy=12.5, num_images=8, num_steps=1)
        monitor.epoch(figures(number))
    monitor.close()


def make(*, quiet: bool = False, num_epochs: int = 3, first_epoch: int = 1) -> progress.Monitor:
    return progress.monitor(
        quiet=quiet, num_epochs=num_epochs, first_epoch=first_epoch, steps_per_epoch=3
    )


@pytest.mark.parametrize("terminal", [False, True])
def test_quiet_shows_nothing(screen, terminal):
    buffer = screen(terminal=terminal)
    run(make(quiet=True), (1, 2, 3))
    assert buffer.getvalue() == ""


def test_elsewhere_than_in_a_terminal_an_epoch_is_one_line(screen, clock):
    buffer = screen(terminal=False)
    run(make(), (1, 2, 3))
    assert buffer.getvalue().splitlines() == [
        "hello",
        *(
            f"epoch  {number}/3  train loss 1.2346  accuracy 55.55 %"
            "  test loss 0.9877  accuracy 66.00 %  0 s left"
            for number in (1, 2, 3)
        ),
    ]


def test_time_left_counts_the_epochs_of_this_process_alone(screen, clock):
    # Resumed for epoch 5 of 10: 30 s an epoch, so 150 s are left after the fifth, 120 s after the
    # sixth.
    buffer = screen(terminal=False)
    monitor = make(num_epochs=10, first_epoch=5)
    for number in (5, 6):
        clock.append(clock[-1] + 30)
        monitor.epoch(figures(number))
    ends = [line.split("%")[-1].strip() for line in buffer.getvalue().splitlines()]
    assert ends == ["2 min left", "2 min left"]
    clock.append(clock[-1] + 240)  # now 100 s an epoch, three of them done
    monitor.epoch(figures(7))
    assert buffer.getvalue().splitlines()[-1].endswith("5 min left")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (45.4, "45 s"),
        (89, "89 s"),
        (90, "2 min"),
        (3600, "60 min"),
        (89 * 60, "89 min"),
        (90 * 60, "1 h 30 min"),
        (7500, "2 h 05 min"),
        (36000, "10 h 00 min"),
    ],
)
def test_a_duration_is_read_at_a_glance(seconds, text):
    assert progress.duration(seconds) == text


def test_an_epoch_is_one_line_whatever_its_figures(screen, clock):
    buffer = screen(terminal=False)
    monitor = make(num_epochs=100)
    clock.append(clock[-1] + 3600)
    extreme = FIGURES | {"train_accuracy": 100.0, "test_accuracy": 100.0}
    monitor.epoch(Epoch(epoch=1, **extreme))
    (line,) = buffer.getvalue().splitlines()
    assert len(line) > WIDTH
    assert line.endswith("99 h 00 min left")


def test_a_long_path_stays_in_one_piece(screen):
    buffer = screen(terminal=False)
    line = "record /home/somebody/" + "a long folder's name/" * 9
    make().print(line)
    assert buffer.getvalue() == line + "\n"


def test_in_a_terminal_a_bar_counts_all_steps_and_leaves_the_lines(screen):
    buffer = screen(terminal=True)
    monitor = make()
    run(monitor, (1, 2, 3))
    shown = buffer.getvalue()
    assert "hello" in shown
    assert shown.count("train loss") == 3
    assert "epoch 3/3" in shown
    assert "loss 2.0000  accuracy 12.50 %" in shown
    assert isinstance(monitor, progress.Bar)
    (task,) = monitor._progress.tasks
    assert (task.completed, task.total) == (9, 9)


def test_a_resumed_run_begins_its_bar_where_the_run_stands(screen):
    screen(terminal=True)
    monitor = make(first_epoch=3)
    assert isinstance(monitor, progress.Bar)
    (task,) = monitor._progress.tasks
    assert (task.completed, task.total) == (6, 9)
    monitor.close()


def test_closing_shows_the_cursor_again_and_ends_the_bars_thread(screen):
    buffer = screen(terminal=True)
    before = set(threading.enumerate())
    monitor = make()
    (thread,) = set(threading.enumerate()) - before
    monitor.close()
    monitor.close()  # an interrupted run closes twice
    thread.join(30)
    assert not thread.is_alive()
    hide, show = "\x1b[?25l", "\x1b[?25h"
    assert buffer.getvalue().rindex(show) > buffer.getvalue().rindex(hide)
