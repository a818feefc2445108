"""The check of the Data Engineer's index."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from m3b.agents.artifacts import DataIndex, Selection, find_json_object
from m3b.agents.check_result import CheckResult, Issue, accept, quote_agent, reject, strip_agent_instructions
from m3b.agents.checks.index_lock import INDEX_FILES, RAW_FOLDER, list_index_files, sha256_or_missing
from m3b.agents.checks.worker_jobs import AUDIT_JOB, AuditRequest
from m3b.data import kinds
from m3b.data.index import Index, read_index, write_unlabelled
from m3b.data.links import WHAT_TO_DO, Leading, leading_out
from m3b.dataset.audit import Audit, Finding, IndexRequest, audit_index
from m3b.dataset.audit.registry import are_installed
from m3b.dataset.jobs import MANIFEST_PATH
from m3b.dataset.words import are_same_numbers, are_same_words
from m3b.errors import DataError, DataRejected, DecisionNeeded
from m3b.isolation.reader import Reader
from m3b.plugins import is_installed
from m3b.tools.paths import write_atomic

AUDIT_FILE = "data_audit.json"
DATA_PROBLEM_CODES = ("one_class", "nothing_opens", "too_few_cases", "all_empty", "one_report", "one_value")
"""Codes of findings that are caused by the data rather than the index, if they remain."""


UNFIXABLE_CODES = (
    "mask_floats", "anisotropic", "one_slice", "four_axes", "few_patients", "no_healthy", "not_opened",
    "report_across", "label_in_name", "label_in_header", "mean_shape",
    "few_values", "text_in_pixels", "identity_in_pixels", "class_scarce_test", "unlabelled_left_out",
)  # fmt: skip
"""Codes of properties of the data that no other index would change: kept for the model card, not shown to the agent."""
SUFFICIENT_TEST_SHARE = 0.15
"""Share of test cases from which a small test split cannot be fixed, because there are no more cases."""


def check_index(
    work: Path,
    selection: Selection,
    *,
    request: str = "",
    closing_text: str = "",
    max_seconds: float = 120.0,
    on_progress: Callable[[int, int], None] | None = None,
    reader: Reader | None = None,
    manifest: Mapping[str, Any] | None = None,
) -> CheckResult:
    """Accept an index that fits the task's schema, whose images and masks open and match, and that separates patients.

    Copies of images must be on one side of the split, too; unlabelled images that are copies, or of tested patients, are taken out
    of the index in `work`. Writes `data_audit.json` into `work`; if no audit is made, an old file is removed.

    Args:
        reader: opens the images; without one, or if the task was added in this process, they are opened in this
            process.
        request: the user's request, with which the classes are compared.
        closing_text: the agent's closing text; if no index was written, `{"unusable": "<why>"}` in it declares the data
            unusable, and `{"undecided": "<question>"}` ends the run with a question.
        manifest: from which m3b made the index; None if a script did.
    """
    with contextlib.suppress(OSError):
        (work / AUDIT_FILE).unlink()  # it was written by an earlier audit or by a script
    try:
        index = read_index(work, selection.task)
    except DataError as error:
        return _reject_unreadable(error, closing_text, was_written=any((work / name).is_file() for name in INDEX_FILES))
    if problem := _find_escaping_path(index, work):
        user_message = f"The index that was written names files outside the data: {problem}"
        return reject(Issue(problem, user_message, "path_outside"))
    if links := leading_out(index.all_images, work):
        return _reject_links(links, len(index.all_images))
    if problem := _find_class_mismatch(index, selection):
        user_message = f"The index that was written has other classes than those requested: {problem}"
        return reject(
            Issue(f"{problem} {_explain_renaming(index, selection, manifest)}", user_message, "other_classes")
        )
    index_request = IndexRequest(request, selection.metric)
    if reader is not None and is_installed(kinds.of(index.task)) and are_installed():
        audit = reader.run_job(
            AUDIT_JOB, AuditRequest(work, index.task, max_seconds, index_request), on_progress=on_progress
        )
    else:
        audit = audit_index(index, work, request=index_request, max_seconds=max_seconds, on_progress=on_progress)
    if audit.unusable:
        kept = tuple(record for record in index.unlabelled if record.key not in audit.unusable)
        index = replace(index, unlabelled=kept)
        write_unlabelled(work, kept, index.task)
    write_atomic(work / AUDIT_FILE, json.dumps(audit.to_json(), indent=1).encode())
    findings = [*audit.of("reject"), *audit.of("fix")]
    if findings:
        is_data_problem = any(finding.code in DATA_PROBLEM_CODES for finding in findings)
        return reject(*map(_issue_from_finding, findings), end_error=DataRejected if is_data_problem else None)
    unfixable = {*UNFIXABLE_CODES}
    if _keeps_own_split(manifest):
        unfixable |= {"small_test", "class_rare_test"}
    elif len(index.test) >= SUFFICIENT_TEST_SHARE * len(index.records):
        unfixable.add("small_test")
    fixable = [finding for finding in audit.of("warn") if finding.code not in unfixable]
    return accept(_make_artifact(work, index, audit), *map(_format_finding, fixable))


def _keeps_own_split(manifest: Mapping[str, Any] | None) -> bool:
    """Whether the manifest takes the data set's own split, whose test part no other index would enlarge."""
    split = (manifest or {}).get("split")
    return isinstance(split, Mapping) and bool(split.get("value") or split.get("test_images"))


def _reject_unreadable(error: DataError, closing_text: str, *, was_written: bool) -> CheckResult:
    """Return the rejection if no index can be read: how to write one (for the agent), and the cause (for the user)."""
    for key, end_error in (("unusable", DataRejected), ("undecided", DecisionNeeded)):
        closing = find_json_object(closing_text, key)
        if closing and str(closing[key]).strip() and not was_written:
            return reject(str(closing[key]).strip(), end_error=end_error, is_fatal=True)
    agent_message = (
        f"{error} Write {MANIFEST_PATH}, from which m3b makes the index; only if a manifest cannot say it, a script that writes "
        f"{', '.join(INDEX_FILES)} (schema and example in resources/indexes/). Tools are called by tool calls, not in a text."
    )
    reason = re.sub(r"\bDatapath/", "", str(error))
    user_message = (
        f"The index that was written cannot be used: {strip_agent_instructions(reason)}"
        if was_written
        else "No index was written."
    )
    return reject(Issue(agent_message, f"{user_message} {quote_agent(closing_text)}".strip(), "index_unreadable"))


def _issue_from_finding(finding: Finding) -> Issue:
    return Issue(
        _format_finding(finding), f"The audit of the data objects: {finding.message}", finding.code, finding.absent
    )


def _format_finding(finding: Finding) -> str:
    cases = f" Cases: {', '.join(finding.cases)}." if finding.cases and finding.severity == "fix" else ""
    return f"{finding.agent_message}{cases}"


def _find_escaping_path(index: Index, work: Path) -> str:
    """Return the problem if a path of the index is not relative, or leads outside the raw data and its derived
    files; else ''.
    """
    raw_folder = work / RAW_FOLDER
    roots = [root.resolve() for root in (work, *(raw_folder.iterdir() if raw_folder.is_dir() else ()))]
    for record in index.all_images:
        for name, paths in (("image_path", record.files), ("mask_path", record.targets)):
            for path in paths:
                if path.startswith("/") or ".." in path.split("/"):
                    return f"{name} {path!r} must be relative to the working directory, such as data/<name>/a.png."
                if path.split("/")[0] != RAW_FOLDER and not _is_within(work / path, roots):
                    return (
                        f"{name} {path!r} is a link to somewhere else; name the file in data/<name>/, or write a copy."
                    )
    return ""


def _reject_links(links: Leading, case_count: int) -> CheckResult:
    """Return the rejection of an index with links that lead out of the data; the user is also told where they lead."""
    summary = f"{links.files:,} files of {links.cases:,} of {case_count:,} cases are links that lead out of the data"
    agent_message = (
        f"{summary}, such as {links.first}. m3b does not follow them, and no script can. Leave these cases out."
    )
    user_message = f"{summary}: {links.first} leads to {links.target}. {WHAT_TO_DO}"
    issue = Issue(agent_message, user_message, "link_outside")
    return reject(issue, end_error=DataRejected if links.cases == case_count else None)


def _is_within(path: Path, roots: Sequence[Path]) -> bool:
    real = path.resolve()
    return any(real.is_relative_to(root) for root in roots)


def _find_class_mismatch(index: Index, selection: Selection) -> str:
    if not selection.classes or (kinds.of(index.task).empty_vocabulary and not index.classes):
        return ""
    requested, names = {name.lower() for name in selection.classes}, {name.lower() for name in index.classes}
    pairs = [(wanted, name) for wanted in requested for name in names if are_same_words(wanted, name)]
    is_inflected = len(pairs) == len(requested) == len(names) == len(dict(pairs)) == len(set(dict(pairs).values()))
    if requested == names or is_inflected or are_same_numbers(selection.classes, index.classes):
        return ""
    return f"label_dict.json names {', '.join(index.classes)}; the selection asks for {', '.join(selection.classes)}."


CLASS_NAMES_KEY = "class_names"
"""Key of the closing text under which a Data Engineer gives other names for the classes of a manifest."""


def _explain_renaming(index: Index, selection: Selection, manifest: Mapping[str, Any] | None) -> str:
    """Return what the agent does about classes of other names: the fewest steps that its index allows."""
    if manifest is None or len(index.classes) != len(selection.classes):
        return "Use exactly these names."
    names = json.dumps(dict.fromkeys(index.classes, "<its name in the selection>"), ensure_ascii=False)
    return (
        f'If they mean the same classes, write no other manifest: reply with {{"{CLASS_NAMES_KEY}": {names}}}, and m3b renames them '
        "in the manifest. Else write one with exactly these names."
    )


def _make_artifact(work: Path, index: Index, audit: Audit) -> DataIndex:
    return DataIndex(
        classes=index.classes,
        multi_label=index.multi_label,
        counts=audit.counts,
        patients=audit.patients,
        cases={"train": len(index.train), "test": len(index.test)},
        hashes={name: sha256_or_missing(work, name) for name in list_index_files(work)},
        notes=tuple(finding.message for finding in audit.of("warn")),
        task=index.task,
        values=dict(index.values),
        patients_known=index.patients_known,
    )
