"""A whole run in a process of its own; prints which parsers of foreign formats m3b's own process has imported, and which
files of the data it has opened."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    tests, data, out = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    sys.path[:0] = [str(tests), str(tests / "pipeline")]
    from pipeline_kit import REQUEST, actor, make_spots

    from watch_kit import begin, imported, opens_below

    make_spots(data)
    noticed = begin()
    from m3b import Pipeline
    from m3b.isolation.reader import client

    started: list[str] = []

    class CountingReaderProcess(client._ReaderProcess):
        def __init__(self, sandbox: Any, mounts: Any, limits: Any) -> None:
            started.append(" ".join(place.name for place in mounts.write))
            super().__init__(sandbox, mounts, limits)

    client._ReaderProcess = CountingReaderProcess  # type: ignore[misc]
    with opens_below(data) as opened_paths:
        next(path for path in data.rglob("*") if path.is_file()).read_bytes()
        noticed += ["opened"] * len(opened_paths)
        opened_paths.clear()
        result = Pipeline(actor(), data=[data], out=out, sandbox=sys.argv[4]).run(REQUEST)
    report = {
        "status": result.status,
        "noticed": noticed,
        "imported": imported,
        "opened": opened_paths,
        "started": started,
    }
    print(json.dumps(report))
