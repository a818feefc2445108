"""What the page on security says of backends is what the code says, and what `m3b doctor` shows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from m3b.isolation.sandbox import reach

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_of_backends_is_the_codes() -> None:
    assert reach.format_threat_table() in (ROOT / "docs/security.md").read_text(encoding="utf-8")


def test_doctor_shows_what_the_backend_cannot_stop() -> None:
    command = [sys.executable, "-m", "m3b", "doctor", "--json"]
    state = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=300).stdout)["sandbox"]
    assert state["not_stopped"] == reach.list_open_threats(state["active"])
    assert state["not_stopped"] or state["active"] == "none"


def test_the_weaker_a_backend_the_more_it_leaves_open() -> None:
    strong, weak, off = (set(reach.list_open_threats(name)) for name in reach.BACKENDS)
    assert strong < weak < off
    assert "network" in off - weak
