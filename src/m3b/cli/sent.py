"""`m3b show RUN --ledger`: which bytes of a run went where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from m3b.cli.show import echo, format_table, print_json

LOCAL_PROCESS_LABEL = "this process"
"""Where a model that no request left for was asked: the rules, a function, a recording."""


def print_ledger(folder: Path, *, as_json: bool) -> None:
    """Print what the run's ledger adds up to, a line for each host and model."""
    from m3b.llm.ledger import LEDGER_FILE, summarize_by_host

    rows = summarize_by_host(folder / LEDGER_FILE)
    if as_json:
        print_json({"ledger": rows})
    elif not rows:
        echo("Nothing was asked of any model: the ledger is empty.")
    else:
        echo(format_table(LEDGER_HEADER, [_format_ledger_row(row) for row in rows]))
        remote_rows = [row for row in rows if not row["local"]]
        remote_requests = sum(row["requests"] for row in remote_rows)
        echo(
            f"{sum(row['bytes'] for row in remote_rows):,} bytes left this machine, in {remote_requests:,} requests."
            if remote_requests
            else "Nothing left this machine."
        )


LEDGER_HEADER = ("host", "model", "requests", "bytes", "input tokens", "output tokens", "cost")


def _format_ledger_row(row: dict[str, Any]) -> list[str]:
    counts = [f"{row[name]:,}" for name in ("requests", "bytes", "input_tokens", "output_tokens")]
    return [row["host"] or LOCAL_PROCESS_LABEL, row["model"], *counts, f"${row['cost_usd']:.4f}"]
