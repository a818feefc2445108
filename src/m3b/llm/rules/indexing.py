"""The index: the best proposed manifest is taken where it is sufficient, else what is missing is said."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from m3b.facts import IndexBrief, Rejection
from m3b.llm.rules.view import StageView, format_give_up, make_call
from m3b.messages import ToolCall

SAY_MORE = "Say more in the request or in a data card, or use a language model."
MAX_QUOTED_CHARACTERS = 300
NO_FINDING_CLASS = "no finding"
"""The class of cases of which no column says yes, where one label a case is wanted."""
SPLIT_FINDING_CODES = ("class_absent_train", "class_absent_test")
"""Findings of the audit that a new split removes."""


def write_index(brief: IndexBrief, view: StageView) -> str | list[ToolCall]:
    """The copy of the best manifest, or the closing words."""
    best = brief.readings[0] if brief.readings else None
    if brief.unusable and (best is None or not best.sufficient):
        return json.dumps({"unusable": brief.unusable}, ensure_ascii=False)
    if best is None:
        return format_give_up(brief.insufficient or f"No manifest of the data was proposed. {SAY_MORE}")
    if best.unclear and not best.sufficient:
        return format_give_up(
            f"How to read the data is not clear: {best.unclear}. Nearest: {best.title}. Say in the request which is meant, "
            "or give the classes in a data card."
        )
    if not best.sufficient:
        return format_give_up(f"{brief.insufficient} {SAY_MORE}")
    if not view.steps:
        return [make_call("copy_files", source=best.file, destination=brief.place)]
    if view.steps[-1].has_failed:
        return format_give_up(f"The proposed manifest {best.file} could not be copied to {brief.place}.")
    if view.rejection and len(view.steps) == 1 and (manifest := repair_manifest(best.spec, view.rejection)):
        text = json.dumps(manifest, indent=1, ensure_ascii=False)
        return [make_call("write_files", files=[{"path": brief.place, "content": text}])]
    if view.rejection:
        reasons = view.rejection.reasons or view.rejection.faults
        reason = reasons[0][:MAX_QUOTED_CHARACTERS] if reasons else "nothing is said"
        message = f"The data was read as {best.title}, and the check does not accept what that gives: {reason}"
        return format_give_up(f"{message} {SAY_MORE}")
    edited = ", edited after the audit" if len(view.steps) > 1 else ""
    return f"The index is made from the proposed manifest: {best.title}{edited}."


def repair_manifest(manifest: dict[str, Any], rejection: Rejection) -> dict[str, Any] | None:
    """A manifest without what the audit found in what it gave; None where that needs more than rules."""
    codes = rejection.codes
    labels, split = _get_section(manifest, "labels"), _get_section(manifest, "split")
    if set(codes) == {"no_label"} and labels.get("one_hot"):
        classes = {NO_FINDING_CLASS: [], **_get_section(labels, "classes")}
        return {**manifest, "labels": {**labels, "classes": classes, "none": NO_FINDING_CLASS}}
    if codes and set(codes) <= set(SPLIT_FINDING_CODES) and split.get("source"):
        return {**manifest, "split": {}}
    classes = _get_section(_get_section(manifest, "masks"), "classes")
    present_classes = {name: value for name, value in classes.items() if name not in rejection.absent}
    if set(codes) == {"class_nowhere"} and present_classes and len(present_classes) < len(classes):
        return {**manifest, "masks": {**_get_section(manifest, "masks"), "classes": present_classes}}
    return None


def _get_section(manifest: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A part of a manifest; empty where there is none, or where what stands there is no part."""
    section = manifest.get(name)
    return section if isinstance(section, dict) else {}
