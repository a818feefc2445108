"""How an index came about, and what m3b makes of one that it did not make itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from m3b.agents.replies import find_object
from m3b.agents.verdict import Fault, Verdict, rejected

if TYPE_CHECKING:
    from m3b.data.spec.model import IndexSpec

PROPOSED, EDITED, GIVEN, SCRIPT = "proposed", "edited", "given", "script"
WORDS = {
    PROPOSED: "The index was made by m3b from a reading that it proposed.",
    EDITED: "The index was made by m3b from a reading that the Data Engineer wrote.",
    GIVEN: "The index was made by m3b from the reading that the user gave.",
    SCRIPT: "The index was made by a script of the Data Engineer's.",
}
"""Origin -> what people are told."""
LABELS_FROM, LEFT_OUT = "labels_from", "left_out"
"""Keys of the closing words by which a Data Engineer gives reasons."""
MAX_REASON = 300


def objection(compared: Mapping[str, Any], said: str) -> Verdict | None:
    """The rejection of an index that says something else than the archive, or leaves cases out, without a reason."""
    issues = []
    if compared["expected"] and not compared["fits"] and not reason(said, LABELS_FROM):
        differ, targets = compared["compared"] - compared["agreeing"], compared["what"]
        user_message = (f"{differ:,} of {compared['compared']:,} cases of the index have other {targets} than "
                        f"{compared['source']}, e.g. "
                f"{'; '.join(compared['differing'])}.")  # fmt: skip
        issues.append(
            Fault(
                f"{user_message} Take the {targets} from there. {_ask_for_reason(LABELS_FROM, 'where they come from, and why')}",
                user_message,
            )
        )
    if compared["leaves_out"] and not reason(said, LEFT_OUT):
        user_message = (f"{compared['missing']:,} of {compared['usable']:,} cases that can be used are not in the index, though their "
                f"images open and are no copies, e.g. {', '.join(compared['absent'])}.")  # fmt: skip
        issues.append(
            Fault(f"{user_message} Add them. {_ask_for_reason(LEFT_OUT, 'why they are left out')}", user_message)
        )
    return rejected(*issues) if issues else None


def _ask_for_reason(key: str, placeholder: str) -> str:
    return f'Only where that is right as it is, reply with {{"{key}": "<{placeholder}>"}}; people will read it.'


def reason(said: str, key: str) -> str:
    """What the Data Engineer says for itself, if it does."""
    reply_object = find_object(said, key)
    return " ".join(str(reply_object[key] or "").split())[:MAX_REASON] if reply_object else ""


def told(origin: str, compared: Mapping[str, Any], said: str) -> list[str]:
    """Origin, agreement with the archive and reasons, for people."""
    lines = [WORDS[origin]]
    targets_word = str(compared.get("what", "labels"))
    if compared.get("compared") and origin == SCRIPT:
        qualifier = "" if compared["fits"] else "only "
        lines.append(
            f"Its {targets_word} agree with {compared['source']} in {qualifier}{compared['agreeing']:,} of "
            f"{compared['compared']:,} cases."
        )
    elif origin == SCRIPT:
        lines.append(f"Its {targets_word} were not compared with the archive: nothing there could be joined with it.")
    if compared.get("missing"):
        lines.append(f"{compared['missing']:,} of {compared['usable']:,} cases that could be used are not in it.")
    for key, heading in (
        (LABELS_FROM, f"{targets_word.capitalize()} are not those of the archive"),
        (LEFT_OUT, "Cases are left out"),
    ):
        if given_reason := reason(said, key):
            lines.append(f"{heading}, by the Data Engineer's word: {given_reason}")
    return lines


def as_reading(spec: IndexSpec) -> dict[str, Any]:
    """A given spec in the form of a proposal."""
    return {"spec": spec.model_dump(mode="json", exclude_defaults=True), "title": "the reading that the user gave", "score": 1.0,
            "evidence": ["given by the user: it stands as it is"], "doubts": [], "unclear": "", "given": True}  # fmt: skip


def as_json(spec: IndexSpec) -> str:
    """A spec as people edit it."""
    return json.dumps(spec.model_dump(mode="json", exclude_defaults=True), indent=1, ensure_ascii=False) + "\n"
