"""How an index came about, and what m3b makes of one that it did not make itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from m3b.agents.replies import find_json_object
from m3b.agents.verdict import CheckResult, Issue, reject

if TYPE_CHECKING:
    from m3b.data.spec.model import IndexSpec

ORIGIN_PROPOSED, ORIGIN_EDITED, ORIGIN_GIVEN, ORIGIN_SCRIPT = "proposed", "edited", "given", "script"
ORIGIN_SENTENCES = {
    ORIGIN_PROPOSED: "The index was made by m3b from a reading that it proposed.",
    ORIGIN_EDITED: "The index was made by m3b from a reading that the Data Engineer wrote.",
    ORIGIN_GIVEN: "The index was made by m3b from the reading that the user gave.",
    ORIGIN_SCRIPT: "The index was made by a script of the Data Engineer's.",
}
"""Origin -> what people are told."""
LABELS_FROM_KEY, LEFT_OUT_KEY = "labels_from", "left_out"
"""Keys of the closing words by which a Data Engineer gives reasons."""
MAX_REASON_CHARS = 300


def find_objection(comparison: Mapping[str, Any], closing_text: str) -> CheckResult | None:
    """The rejection of an index that says something else than the archive, or leaves cases out, without a reason."""
    issues = []
    if comparison["expected"] and not comparison["fits"] and not extract_reason(closing_text, LABELS_FROM_KEY):
        differ, targets = comparison["compared"] - comparison["agreeing"], comparison["what"]
        user_message = (f"{differ:,} of {comparison['compared']:,} cases of the index have other {targets} than "
                        f"{comparison['source']}, e.g. "
                f"{'; '.join(comparison['differing'])}.")  # fmt: skip
        issues.append(
            Issue(
                f"{user_message} Take the {targets} from there. {_ask_for_reason(LABELS_FROM_KEY, 'where they come from, and why')}",
                user_message,
            )
        )
    if comparison["leaves_out"] and not extract_reason(closing_text, LEFT_OUT_KEY):
        user_message = (f"{comparison['missing']:,} of {comparison['usable']:,} cases that can be used are not in "
                        f"the index, though their "
                f"images open and are no copies, e.g. {', '.join(comparison['absent'])}.")  # fmt: skip
        issues.append(
            Issue(f"{user_message} Add them. {_ask_for_reason(LEFT_OUT_KEY, 'why they are left out')}", user_message)
        )
    return reject(*issues) if issues else None


def _ask_for_reason(key: str, placeholder: str) -> str:
    return f'Only where that is right as it is, reply with {{"{key}": "<{placeholder}>"}}; people will read it.'


def extract_reason(closing_text: str, key: str) -> str:
    """What the Data Engineer says for itself, if it does."""
    reply_object = find_json_object(closing_text, key)
    return " ".join(str(reply_object[key] or "").split())[:MAX_REASON_CHARS] if reply_object else ""


def describe_origin(origin: str, comparison: Mapping[str, Any], closing_text: str) -> list[str]:
    """Origin, agreement with the archive and reasons, for people."""
    lines = [ORIGIN_SENTENCES[origin]]
    targets_word = str(comparison.get("what", "labels"))
    if comparison.get("compared") and origin == ORIGIN_SCRIPT:
        qualifier = "" if comparison["fits"] else "only "
        lines.append(
            f"Its {targets_word} agree with {comparison['source']} in {qualifier}{comparison['agreeing']:,} of "
            f"{comparison['compared']:,} cases."
        )
    elif origin == ORIGIN_SCRIPT:
        lines.append(f"Its {targets_word} were not compared with the archive: nothing there could be joined with it.")
    if comparison.get("missing"):
        lines.append(f"{comparison['missing']:,} of {comparison['usable']:,} cases that could be used are not in it.")
    for key, heading in (
        (LABELS_FROM_KEY, f"{targets_word.capitalize()} are not those of the archive"),
        (LEFT_OUT_KEY, "Cases are left out"),
    ):
        if given_reason := extract_reason(closing_text, key):
            lines.append(f"{heading}, by the Data Engineer's word: {given_reason}")
    return lines


def make_user_proposal(manifest: IndexSpec) -> dict[str, Any]:
    """A given spec in the form of a proposal."""
    return {"spec": manifest.model_dump(mode="json", exclude_defaults=True), "title": "the reading that the user gave", "score": 1.0,
            "evidence": ["given by the user: it stands as it is"], "doubts": [], "unclear": "", "given": True}  # fmt: skip


def manifest_to_json(manifest: IndexSpec) -> str:
    """A spec as people edit it."""
    return json.dumps(manifest.model_dump(mode="json", exclude_defaults=True), indent=1, ensure_ascii=False) + "\n"
