"""A set carved and a model scored in a process of its own; prints which parsers of foreign formats m3b's own process has
imported, and which files of the data it has opened."""

from __future__ import annotations

import json
import sys
from pathlib import Path

if __name__ == "__main__":
    name, source, carved, by_hand = sys.argv[1], *map(Path, sys.argv[2:])
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from watch_kit import begin, imported, opens_below

    noticed = begin()
    from m3b.bench.carve_out import carve
    from m3b.bench.datasets import get_dataset
    from m3b.bench.scoring import HiddenExam, score_hidden_cases
    from m3b.isolation.sandbox import choose_sandbox

    with opens_below(source) as raw, opens_below(carved) as carved_opens:
        next(one for one in source.rglob("*") if one.is_file()).read_bytes()
        noticed += ["opened"] * len(raw)
        raw.clear()
        hidden = carve(get_dataset(name), source, carved, stand_in=True)
        score = score_hidden_cases(
            HiddenExam.from_carve_out(hidden, get_dataset(name), None), by_hand, sandbox=choose_sandbox()
        )
    report = {"noticed": noticed, "imported": imported, "opened": {**raw, **carved_opens}}
    print(json.dumps({**report, "error": score.error, "primary": score.primary}))
