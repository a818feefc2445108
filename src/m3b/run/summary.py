"""A run in a few values, as lists of runs show it."""

from __future__ import annotations

import time
from typing import Any

from m3b.errors import UsageError
from m3b.markup.json_values import as_dict
from m3b.run.folder import RunFolder


def summarize_run(run: RunFolder) -> dict[str, Any]:
    """Return id, name for commands, folder, start, status, reason, request, task, primary metric, verdict and usage of a run.

    A run whose run.json cannot be read has the status `unreadable` and the reason as its request.
    """
    try:
        record = run.load_record()
    except UsageError as error:
        record = {"status": "unreadable", "request": str(error), "started": run.started_at}
    status = record.get("status", "?")
    if status == "working" and not run.is_busy:
        status = "interrupted"
    result = as_dict(record.get("result"))
    return {
        "id": run.id,
        "handle": run.display_name,
        "folder": str(run.path),
        "started": time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started_at)),
        "status": str(status),
        "request": str(record.get("request", "")),
        "reason": str(record.get("reason") or ""),
        "task": str(result.get("task") or ""),
        "primary": result.get("primary"),
        "has_verdict": result.get("has_verdict") is not False,
        "usage": as_dict(result.get("usage")),
    }
