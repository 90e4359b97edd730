"""A train command that ends at its first step: `python -m benchmarks.first_step jax [FLAGS]`.

It prints a line as soon as the first loss is known, and is gone: whoever started it knows how long
a user waits. See benchmarks.whole_runs.
"""

import os
import runpy
import sys

from parity import progress


class _First(progress.Silent):
    def steps(self, **_: object) -> None:
        print("first step", flush=True)
        os._exit(0)


if __name__ == "__main__":
    framework = sys.argv.pop(1)
    progress.monitor = lambda **_: _First()
    runpy.run_module(f"{framework}_impl.train", run_name="__main__", alter_sys=True)
