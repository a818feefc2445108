"""Taking a reading that was proposed for the folder."""

from __future__ import annotations

import json
from typing import Any

from m3b.llm.rules.view import View, call
from m3b.messages import ToolCall

HEADING = "## Proposed readings\n"
SPEC = "Datapath/index_spec.json"


def offers(view: View) -> list[dict[str, Any]]:
    """The readings of the briefing, best first; none in conversations without them."""
    _, found, rest = view.briefing.partition(HEADING)
    if not found:
        return []
    try:
        read, _ = json.JSONDecoder().raw_decode(rest)
    except ValueError:
        return []
    return [one for one in read if isinstance(one, dict) and "file" in one] if isinstance(read, list) else []


def take(view: View) -> str | list[ToolCall] | None:
    """The next step with the proposed readings; None where none of them may be taken, so that others are tried."""
    readings = offers(view)
    if not readings:
        return None
    taken = [step for step in view.steps if step.call.name == "copy_files"]
    if not taken:
        best = readings[0]
        if best.get("sufficient"):
            return [call("copy_files", source=best["file"], destination=SPEC)]
        if best.get("unclear"):
            told = (
                f"How to read the data is not clear: {best['unclear']}. Nearest: {best['title']}. Say in the request which "
                "is meant, or give the classes in a data card."
            )
            return json.dumps({"given_up": told}, ensure_ascii=False)
        return None
    best = readings[0]
    if view.rejected:
        told = f"The data was read as {best['title']}, and the check does not accept what that gives: {_first(view.rejected)}"
        return json.dumps({"given_up": f"{told} Say more in the request or in a data card."}, ensure_ascii=False)
    return f"The index is made from the proposed reading: {best['title']}."


def _first(rejection: str) -> str:
    """The first thing that a rejection names."""
    named = [line.removeprefix("- ") for line in rejection.splitlines() if line.startswith("- ")]
    return (named[0] if named else rejection)[:300]
