"""The report of a run: one self-contained page that loads nothing, with m3b's own scripts and uPlot inside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from m3b.errors import M3bError, RunEnd
from m3b.isolation.sandbox import Sandbox
from m3b.markup.html import Html
from m3b.markup.json_values import as_dict
from m3b.report import data_view, measured_view, process_view, summary_view, training_view
from m3b.report.case_ranking import CaseRanking, rank_cases
from m3b.report.case_reliability import describe_saliency, describe_selective_risk
from m3b.report.page_template import CURVES_SCRIPT, CURVES_STYLE, REPORT_SCRIPT, STYLE, embed_json, render_page
from m3b.report.pictures import ReaderOpener, draw_pictures
from m3b.report.run_files import NO_NOTES, ReportNotes, RunFiles, read_run_files
from m3b.report.search_view import make_search_view
from m3b.report.timeline import list_role_groups
from m3b.writing import write_text_atomically

MAX_TABLE_ROWS = 2000
SECTION_TITLES = {
    "inventory": "What was in the folder",
    "cases": "Test cases",
    "measured": "Metrics",
    "data": "Data",
    "training": "Training",
    "process": "The run",
    "limits": "Limits",
}
"""Sections of the page in their order, with their titles in the contents."""


REPORT_FILE = "report.html"


def write_report(
    run_dir: Path,
    open_picture_reader: ReaderOpener | None = None,
    notes: ReportNotes = NO_NOTES,
    *,
    should_draw: bool = True,
) -> Path:
    """Write `report.html` into a run folder, in whatever state the run is, and return its path.

    Pictures of examples and of test cases are drawn by a confined reader if the run has none yet. Parts of the run that
    are missing, truncated or invalid are left out of the page.

    Args:
        open_picture_reader: opens a confined reader of `locked/` and the raw data; an own one by default.
        notes: what the files of the run do not say; `m3b.run.reporting` collects it.
        should_draw: whether pictures are drawn that the run does not have yet.

    Raises:
        OSError: the folder cannot be written to.
    """
    files = read_run_files(run_dir)
    picture_note = draw_report_pictures(files, open_picture_reader) if should_draw else ""
    page = render_report(read_run_files(run_dir, notes), picture_note)
    target = run_dir / REPORT_FILE
    write_text_atomically(target, page, errors="replace")
    return target


def draw_report_pictures(
    files: RunFiles, open_picture_reader: ReaderOpener | None = None, sandbox: Sandbox | None = None
) -> str:
    """Draw the pictures of a run; return why there are none, if that needs words.

    Args:
        sandbox: confines the model that explains some of its answers; the strongest one of this machine by default.
    """
    task = files.result.get("task") or files.scores.get("task") or files.audit.get("task")
    if not isinstance(task, str) or not task:
        return ""
    try:
        ranking = _rank(files)
        draw_pictures(files.folder, task, ranking.shown_keys, open_picture_reader, ranking.explained_keys, sandbox)
    except (M3bError, RunEnd, OSError, ValueError) as error:  # a cancelled run has a report all the same
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        return f"Pictures could not be drawn: {reason}"
    return ""


def list_case_answers(files: RunFiles) -> dict[str, tuple[str, str]]:
    """Return the key of each measured test case -> what is true of it, and the model's answer."""
    return {case.key: (case.summary.truth, case.summary.answer) for case in _rank(files).cases}


def _rank(files: RunFiles) -> CaseRanking:
    task = files.scores.get("task") or files.result.get("task")
    return rank_cases(files.test_rows, measured_view.find_report_section(task))


def render_report(files: RunFiles, picture_note: str = "") -> str:
    """Return the page as text."""
    return render_page(
        "report.html",
        styles=(STYLE, CURVES_STYLE),
        scripts=(CURVES_SCRIPT, REPORT_SCRIPT),
        **collect_report_values(files, picture_note),
    )


def collect_report_values(files: RunFiles, picture_note: str = "") -> dict[str, Any]:
    """Return the values of `report.html`."""
    values = _collect_values(files, picture_note)
    filled = {
        "inventory": bool(values["inventory"]),
        "cases": bool(values["ranking"].cases),
        "measured": bool(values["metrics"] or values["charts"] or values["external_rows"] or values["task_details"]),
        "data": bool(values["count_rows"] or values["examples"] or values["findings"] or values["index_notes"]
                     or values["exclusions"] or values["data_facts"]),
        "training": bool(values["search"] or values["plan_rows"] or values["curves"] or values["site_rows"]),
        "process": bool(values["role_groups"] or values["role_rows"] or values["integrity"] or values["usage"]
                        or values["delivered"] or values["record_tables"]),
        "limits": bool(values["limitations"]),
    }  # fmt: skip
    sections = [name for name in SECTION_TITLES if filled[name]]
    contents = [(name, SECTION_TITLES[name]) for name in sections] if len(sections) > 1 else []
    return {**values, "sections": sections, "contents": contents, "has_cases": filled["cases"]}


def _collect_values(files: RunFiles, picture_note: str) -> dict[str, Any]:
    scores, pictures = files.scores, files.pictures
    task = scores.get("task") or files.result.get("task")
    report_section, ranking = measured_view.find_report_section(task), _rank(files)
    label_head, label_rows = measured_view.list_label_rows(scores)
    subgroup_rows, n_undefined_groups = measured_view.list_subgroup_rows(scores)
    count_head, count_rows = data_view.list_count_rows(files.audit)
    index_notes, exclusions = data_view.list_index_notes(files)
    role_head, role_rows = process_view.list_role_rows(files)
    role_groups, n_hidden_events = list_role_groups(files)
    site_head, site_rows = training_view.list_site_rows(files)
    curves = training_view.list_curves(files.training_log)
    cases = ranking.cases
    return {
        "header": summary_view.make_header(files),
        "headline": summary_view.make_headline(files),
        "steps": files.notes.next_steps,
        "inventory": []
        if count_rows or files.test_rows or files.delivered_files
        else summary_view.list_inventory(files),
        "ranking": ranking,
        "is_text": report_section.are_answers_texts,
        "max_rows": MAX_TABLE_ROWS,
        "show_patients": scores.get("patients_known") is True and any(case.patient for case in cases),
        "show_verdicts": ranking.n_wrong is not None,
        "show_flags": any(case.is_flagged for case in cases),
        "show_sets": any(case.prediction_set is not None for case in cases),
        "show_uncertainty": ranking.has_uncertainties,
        "saliency_notes": {
            picture.key: describe_saliency(picture.saliency) for picture in pictures.tests if picture.saliency
        },
        "pictures_by_key": {picture.key: picture for picture in pictures.tests},
        "has_pictures": bool(pictures.tests or pictures.examples),
        "legend": pictures.legend,
        "picture_note": picture_note,
        "test_set": measured_view.describe_test_set(scores),
        "metrics": measured_view.list_metrics(files),
        "reliability": [*measured_view.describe_reliability(scores), *describe_selective_risk(ranking)],
        "charts": measured_view.list_charts(scores, ranking, report_section),
        "label_head": label_head,
        "label_rows": label_rows,
        "class_rows": measured_view.list_class_rows(scores),
        "external_rows": measured_view.list_external_rows(files.result),
        "primary_title": measured_view.format_metric_name(summary_view.read_primary_measure(files).get("name", "")),
        "subgroup_rows": subgroup_rows,
        "n_undefined_groups": n_undefined_groups,
        "task_details": Html(report_section.render_details(scores)),
        "audit": files.audit,
        "count_head": count_head,
        "count_rows": count_rows,
        "data_facts": [*data_view.list_origin_facts(files), *data_view.list_data_facts(files.audit)],
        "examples": pictures.examples,
        "findings": data_view.list_findings(files.audit),
        "index_notes": index_notes,
        "exclusions": exclusions,
        "assumptions": data_view.list_assumptions(files) if as_dict(files.manifest) or not count_rows else [],
        "manifest_json": data_view.format_manifest(files),
        "site_head": site_head,
        "site_rows": site_rows,
        "left_sites_out": files.plan.get("fold_groups") == "sites",
        "search": make_search_view(files),
        "plan_rows": training_view.list_plan_rows(files),
        "curves": curves,
        "curves_json": embed_json([chart.to_json() for chart in curves]),
        "integrity": process_view.describe_integrity(files),
        "warnings": process_view.list_warnings(files),
        "role_head": role_head,
        "role_rows": role_rows,
        "usage": process_view.list_usage(files),
        "role_groups": role_groups,
        "n_hidden_events": n_hidden_events,
        "delivered": process_view.summarize_delivered(files),
        "reproduction": process_view.list_reproduction(files),
        "record_tables": process_view.list_record_tables(files),
        "limitations": process_view.list_limitations(files),
    }
