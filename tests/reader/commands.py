"""One command of m3b in a process of its own; prints which parsers of foreign formats m3b's own process has imported."""

from __future__ import annotations

import json
import sys

from whole_run import Watcher, forget, imported

if __name__ == "__main__":
    forget()
    sys.meta_path.insert(0, Watcher())
    from PIL import Image  # noqa: F401 - shows that the watch works

    noticed = list(imported)
    imported.clear()
    forget()
    from typer.testing import CliRunner

    from m3b.cli.app import app

    shown = CliRunner().invoke(app, sys.argv[1:])
    print(json.dumps({"code": shown.exit_code, "said": shown.output, "noticed": noticed, "imported": imported}))
