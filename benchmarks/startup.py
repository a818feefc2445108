"""Measure the start of `import m3b`, `from m3b import Pipeline` and `m3b --help` against bare Python, in one run.

python benchmarks/startup.py [--runs 15]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time


def median_seconds(command: list[str], runs: int) -> float:
    """Return the median wall time of a command."""
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    bare_s = median_seconds([sys.executable, "-c", "pass"], runs)
    print(f"bare Python            {bare_s * 1e3:7.1f} ms")
    for name, command, limit in (
        ("import m3b", [sys.executable, "-c", "import m3b"], 0.150),
        ("from m3b import Pipeline", [sys.executable, "-c", "from m3b import Pipeline"], 0.200),
        ("m3b --help", [sys.executable, "-m", "m3b", "--help"], 0.400),
    ):
        command_s = median_seconds(command, runs)
        cost_s = command_s - bare_s if "import" in name else command_s
        verdict = "" if limit is None else f"  {'within' if cost_s <= limit else 'OVER'} {limit * 1e3:.0f} ms"
        print(f"{name:<24}{command_s * 1e3:6.1f} ms  {command_s / bare_s:5.1f} x bare{verdict}")


if __name__ == "__main__":
    main()
