"""What the rules say where a layout is beyond them, and what the likeliest reading of it found."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from m3b.llm.rules.view import Step

READ_AS = {
    "--class-folders": "as class folders",
    "--table": "as a table",
    "--archive": "as an archive of arrays",
    "--masks": "as images with masks",
    "--boxes": "as images with boxes",
}
LINES = 4
"""So many lines of the indexing script's output are told."""
BEYOND = (
    "This layout is beyond the rules: they read class folders, a table that names images and labels, MedMNIST-like NPZ "
    "archives, masks beside images, files of boxes, and tables or files of reports."
)
INSTEAD = "Use a language model, or write a data card that says more."


def given_up(words: str, tried: Sequence[Step]) -> str:
    """The words for the user, with what the likeliest reading found: the first that was tried."""
    found = _said(tried[0].result) if tried else ""
    option = next((word for word in tried[0].command.split() if word.startswith("--")), "") if tried else ""
    reading = READ_AS.get(option, "as the preview suggests")
    nearest = f' Read {reading}, the indexing script said: "{found}"' if found else ""
    return json.dumps({"given_up": f"{words}{nearest} {INSTEAD}"}, ensure_ascii=False)


def _said(result: str) -> str:
    """The last lines that the indexing script printed, without its advice on options."""
    if "Traceback (most recent call last)" in result or "--- last traceback ---" in result:
        return result.strip().splitlines()[-1]
    lines = result.partition(" ---\n")[2].splitlines()
    kept = [re.sub(r"(?:^|(?<=[.:;])\s+)[^.;]*\s--[a-z][^.;]*[.;]?", "", line).strip() for line in lines]
    return "; ".join([line for line in kept if line and not line.startswith(("wrote ", "split: ", "["))][-LINES:])
