"""`python -m tests.fuzz --files 100000 --calls 100000`: the fuzzer with numbers of one's own; prints what came of it."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz.fuzzing import Place, fuzz_calls, fuzz_files
from m3b.isolation.sandbox import choose_sandbox


def main() -> None:
    """Files first, then calls, each in folders of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sandbox", default="auto")
    options = parser.parse_args()
    sandbox = choose_sandbox(options.sandbox)
    for label, fuzz, count in (
        ("mutated files", fuzz_files, options.files),
        ("fuzzed calls", fuzz_calls, options.calls),
    ):
        if not count:
            continue
        with tempfile.TemporaryDirectory(prefix="m3b-fuzz-") as top:
            tally = fuzz(Place(Path(top)), sandbox, count, options.seed)
        print(f"{label} ({sandbox.name}, seed {options.seed}): {tally.told()}", flush=True)
        for line in tally.ended[:20]:
            print(f"  {line[:300]}")


if __name__ == "__main__":
    main()
