"""The family of report generation: the written text compared with the true one, and a test of whether the image was used."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from m3b.data.altering import WAYS
from m3b.data.index import Index
from m3b.data.kinds import of as records_of
from m3b.data.records import Record
from m3b.metrics import Scores
from m3b.models import Prediction
from m3b.tasks.base import Row, TaskFamily, make_base_row
from m3b.tasks.report.answers import ReportAnswers
from m3b.tasks.report.baselines import best_constant_reports, measure_image_use
from m3b.tasks.report.findings import build_finding_phrases, frequent_observations
from m3b.tasks.report.metrics import REPORT_METRICS, ReportCase, score_reports
from m3b.tasks.report.report_section import TextReportSection


class ReportGeneration(TaskFamily):
    """The report family; see `TaskFamily`."""

    name = "report"
    records = records_of("report")
    answers = ReportAnswers()
    metrics = REPORT_METRICS
    report_section = TextReportSection()
    index_guide = (
        '{"image_path": path or list of views, "report": {"findings": "...", "impression": "..."}, "patient": "p1"}'
        ' (one text may be empty), optional "labels": finding names; label_dict.json names these from 0, or is {}.'
    )
    request_pattern = (
        r"(?:writ|generat|draft|produc|compos|schreib|verfass|erstell|gener|redig|redact|escrib)\w*\W+(?:\w+\W+){0,8}?"
        r"(?:report|bericht|befundbericht|befund|informe|comptes?[- ]rendu|radiologist.s text)"
        r"|report (?:generation|writing)|(?:生成|撰写|写)\S{0,6}报告"
        # "write the findings" is a text; "find the findings" is not
        r"|(?:^|[.;,]\s*|\b(?:that|to|which|can|please)\s+)(?:writ|draft|compos|dictat|redig|redact|verfass|schreib)"
        r"\w*\W+(?:\w+\W+){0,4}?"
        r"(?:findings|impressions?|conclusions?|captions?|descriptions?|befunde?|hallazgos|conclusiones)"
    )
    required_targets = ("texts",)
    default_plan = (
        "Read findings and impression from the table or the files that the preview shows; put the views of a study "
        "together; take the patient from its column or the name; keep an own split; leave out what has no text."
    )
    aliases = ("report generation", "reports", "captioning")
    order_pattern = (
        r"(?:writes?|generates?|drafts?|schreibe?|erstelle?|verfasse?|redige|redacta|escribe)\s+"
        r"(?!(?:\w+\W+){0,4}?(?:evaluation|training|performance|summary|pdf|html|test)\b)(?:\w+\W+){0,4}?"
        r"(?:reports?|befundberichte?|berichte?|informes?|comptes?[- ]rendus?)\b"
        r"(?!\s+(?:(?:of|on|about|with)\s+)(?:\w+\s+){0,2}(?:result|performance|accuracy|metric|training|model))"
    )
    model_title = "Report writer"
    max_validation_cases = 150

    def is_named_in(self, text: str) -> bool:
        """Return whether a request names this task; labels that were extracted from reports do not."""
        extracted_labels = re.search(r"labels? (?:were |are )?(?:taken|from|extracted)", text)
        return extracted_labels is None and super().is_named_in(text)

    def can_share_clause(self) -> bool:
        """Return False: a report is a model of its own beside one that marks or tells apart."""
        return False

    def format_title(self, classes: Sequence[str]) -> str:
        """Return the title without the findings: a report writes about everything that is seen."""
        return self.model_title

    def valid_output_counts(self, classes: int, plan: Mapping[str, Any]) -> tuple[int, ...]:
        """Allow any number of outputs: they are the words of a vocabulary."""
        return ()

    def measure(self, record: Record, prediction: Prediction, index: Index, root: Path) -> Row:
        """Return the true and the predicted text."""
        reference = record.report.text if record.report else ""
        return {**make_base_row(record), "reference": reference, "prediction": prediction.text}

    def predict_baseline(self, training: Sequence[Record], records: Sequence[Record], index: Index, root: Path) -> Any:
        """Return the training reports that score best as a constant answer."""
        texts = [record.report.text for record in training if record.report and record.report.text]
        return list(best_constant_reports(texts)) if texts else []

    def score(self, rows: Sequence[Row], index: Index, *, primary: str, baseline: Any = None, seed: int = 0) -> Scores:
        """Compute word metrics, and label F1 of the findings that the index, or enough reports, name.

        `details["image_use"]` compares each report with the one that the model writes for another image.
        """
        cases = [ReportCase(row["image"], row["patient"], row["reference"], row["prediction"]) for row in rows]
        finding_phrases = build_finding_phrases(index.classes) or frequent_observations(
            [case.reference for case in cases]
        )
        scores = score_reports(
            cases, finding_phrases or None, primary=primary, baseline_reports=tuple(baseline or ()), seed=seed
        )
        try:
            image_use_result = measure_image_use(
                cases, finding_phrases or None, metric="label_f1" if finding_phrases else primary, seed=seed
            )
        except ValueError:
            return scores  # one patient has most of the cases, so nothing can be shuffled
        gain = None if image_use_result.gain is None else list(image_use_result.gain)
        control = {
            "metric": image_use_result.metric,
            "own_image": image_use_result.value,
            "other_image": image_use_result.shuffled_value,
            "gain": gain,
            "chance": image_use_result.p_value,
        }
        return replace(scores, details={**scores.details, "image_use": control})

    def list_alterations(self) -> tuple[str, ...]:
        """Return all alterations: a text does not depend on the framing."""
        return WAYS

    def answer_distance(self, row: Row, other_row: Row) -> float:
        """Return the share of words that the two texts do not have in common."""
        return text_distance(row["prediction"] or "", other_row["prediction"] or "")

    def make_baseline_rows(self, rows: Sequence[Row], index: Index, baseline: Any = None) -> Sequence[Sequence[Row]]:
        """Return rows for each of the best constant reports."""
        return [[{**row, "prediction": text} for row in rows] for text in baseline or ()]


def text_distance(first: str, second: str) -> float:
    """Return one minus the F1 of the words that two texts share, with repeated words counted."""
    first_words, second_words = (Counter(re.findall(r"\w+", text.lower())) for text in (first, second))
    total = first_words.total() + second_words.total()
    return 1.0 - 2 * (first_words & second_words).total() / total if total else 0.0


FAMILY = ReportGeneration()
