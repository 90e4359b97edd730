"""A training command that ends with the study that started it, however that ends.

python -m parity.study.leash MODULE ARGUMENT...

Standard input is a pipe that the study holds open and writes nothing to: when it closes, the study
is gone, by `kill -9` too, and this process kills itself. A run is whole at any moment.
"""

import os
import runpy
import signal
import sys
import threading


def _watch() -> None:
    # Not sys.stdin.read: its lock would not let the interpreter end while this waits.
    os.read(0, 1)
    if os.name == "posix":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(137)


if __name__ == "__main__":
    threading.Thread(target=_watch, daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
