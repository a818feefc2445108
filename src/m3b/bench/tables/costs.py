"""The table of what the runs of a sweep used."""

from __future__ import annotations

from collections.abc import Sequence

from m3b.bench.resource_use import CORE_WATTS, GPU_WATTS, add_up_use
from m3b.bench.tables.base import ResultTable, Row, group_rows


def make_cost_table(rows: Sequence[Row]) -> ResultTable:
    """Return the table of time, money and estimated energy of each system and model, of all runs and for a completed one."""
    table_rows = []
    for (system, model), group in group_rows(rows, "system", "model").items():
        use, completed = add_up_use(group), sum(bool(row["ok"]) for row in group)
        if use.cpu_hours is None or use.energy_wh is None:
            continue
        per_success = f"{use.cost_usd / completed:.2f}" if completed else ""
        energy_per_success = f"{use.energy_wh / completed:.0f}" if completed else ""
        table_rows.append((f"{system} / {model}", str(len(group)), str(completed), f"{use.wall_hours:.2f}",
                     f"{use.cpu_hours:.2f}", f"{use.cost_usd:.2f}", per_success, f"{use.energy_wh:.0f}",
                     energy_per_success))  # fmt: skip
    header = (
        "system / model", "runs", "completed", "wall h", "CPU h", "US$", "US$ a completed run", "Wh (estimate)",
        "Wh a completed run",
    )  # fmt: skip
    notes = (
        "US$: as the ledger of each run counts it. Wh: estimated, not measured, from processor time at "
        f"{CORE_WATTS:g} W a core and wall time at {GPU_WATTS:g} W for each GPU of the machine.",
    )
    return ResultTable("costs", "Time, money and energy", header, tuple(table_rows), notes if table_rows else ())
