"""One command of m3b in a process of its own; prints which parsers of foreign formats m3b's own process has imported, and
which files below the folder that is the first argument it has opened."""

from __future__ import annotations

import json
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from watch_kit import begin, imported, opens_below

    noticed = begin()
    from typer.testing import CliRunner

    from m3b.cli.app import app

    with opens_below(Path(sys.argv[1])) as opened_paths:
        next(path for path in Path(sys.argv[1]).rglob("*") if path.is_file()).read_bytes()
        noticed += ["opened"] * len(opened_paths)
        opened_paths.clear()
        result = CliRunner().invoke(app, sys.argv[2:])
    report = {"noticed": noticed, "imported": imported, "opened": opened_paths}
    print(json.dumps({"code": result.exit_code, "said": result.output, **report}))
