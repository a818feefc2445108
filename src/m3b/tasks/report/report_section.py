"""The part of a report page that only a report writer has: different texts, and the constant report."""

from __future__ import annotations

from typing import Any

from m3b.markup.formatting import format_count, shorten
from m3b.markup.html import Html, join_html, tag
from m3b.markup.json_values import as_dict, as_list, to_finite_number
from m3b.tasks.report.text_similarity import rouge_l, tokenize
from m3b.tasks.report_section import CaseSummary, ReportSection


class TextReportSection(ReportSection):
    """See `ReportSection`."""

    are_answers_texts = True

    def summarize_case(self, row: dict[str, Any]) -> CaseSummary | None:
        """Return both texts of a case, and their ROUGE-L."""
        true_text, model_text = str(row["reference"]), str(row["prediction"] or "")
        return CaseSummary(true_text, model_text, rouge_l(tokenize(model_text), tokenize(true_text)), "ROUGE-L")

    def render_details(self, scores: dict[str, Any]) -> Html:
        """Return the number of different texts, and the constant report that is the baseline."""
        details, sentences = as_dict(scores.get("details")), []
        if to_finite_number(details.get("distinct")) is not None:
            case_count = format_count(scores.get("n_cases"))
            sentences.append(f"{format_count(details.get('distinct'))} different texts on {case_count} cases.")
        texts = [shorten(text, 300) for text in as_list(details.get("constant")) if isinstance(text, str)]
        if texts:
            sentences.append(f"The constant report that it is compared with: “{texts[0]}”")
        return join_html(*(tag("p", sentence) for sentence in sentences))
