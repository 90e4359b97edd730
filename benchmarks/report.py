"""What comparing and reporting many runs takes: `python -m benchmarks.report [RUNS]`, 10,000.

The records are made up. The goal for 10,000: comparing and writing the report, without reading the
records, within 10 seconds on one core; all within 1 GB.
"""

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.made_up_runs import write_runs
from parity.comparison import compare
from parity.report.__main__ import write
from parity.results import read


def main(num_runs: int) -> None:
    """Print the seconds that reading, comparing and reporting take, and the peak memory."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_runs(folder / "runs", num_runs)
        results = _timed("read", lambda: read([folder / "runs"]).results)
        comparison = _timed("compare", lambda: compare(results, threshold=70.0))
        page = _timed("report", lambda: write(comparison, folder / "report"))
        size = page.stat().st_size
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{num_runs:,} runs: peak memory {peak / 1024:.0f} MB, page {size / 1e6:.2f} MB")


def _timed(name: str, work: Callable[[], Any]) -> Any:
    begin, cpu = time.perf_counter(), time.process_time()
    result = work()
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    print(f"{name}: {seconds:.1f} s ({cpu:.1f} s of CPU time)", flush=True)
    return result


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
