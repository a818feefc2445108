"""The result of a run."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_args

from m3b.display import make_html_grid, make_html_link, make_html_pictures, make_html_table, shorten
from m3b.errors import Status
from m3b.measure import Measure, describe_test_looks, describe_test_sample, describe_unknown_patients, format_measure

STATUSES: tuple[Status, ...] = get_args(Status)

DELIVERED_STATUSES: tuple[Status, ...] = ("completed", "below_range")
"""Statuses of a run that delivered a model as it should be."""
FINAL_STATUSES: tuple[Status, ...] = (*DELIVERED_STATUSES, "no_dataset", "rejected_data")
"""Statuses that `resume` returns unchanged, since continuing would not change them; other runs continue."""


@dataclass(frozen=True)
class ExternalResult:
    """Result on an external test set, or why it was not measured.

    Args:
        name: as the user named it.
        reason: why there is no measurement; empty if there is one.
        primary: the primary metric of the run on these cases.
        metrics: every metric by name, as `Measure.to_dict` returns it.
        cases: number of measured cases.
        patients: number of patients; None if they are unknown.
        grouped_by: as in `Result`.
        notes: what was read, renamed and excluded.
    """

    name: str
    reason: str = ""
    primary: Measure | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    cases: int = 0
    patients: int | None = None
    patients_known: bool = False
    grouped_by: str = ""
    notes: tuple[str, ...] = ()

    @property
    def is_measured(self) -> bool:
        return self.primary is not None

    @property
    def summary(self) -> str:
        """One line for people: the primary metric and the number of cases, or why there is none."""
        if self.primary is None:
            return f"external {self.name}: not measured. {self.reason}"
        patients_text = f"{self.patients} patients" if self.patients is not None else "patients unknown"
        figure_text = (
            format_measure(self.primary.to_dict(), with_baseline=True)
            or f"{self.primary.name} is undefined on these cases"
        )
        return f"external {self.name}: {figure_text}; {self.cases} cases, {patients_text}"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {**asdict(self), "primary": self.primary and self.primary.to_dict(), "notes": list(self.notes)}

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> ExternalResult:
        """Return the result of `to_dict`; keys of other versions are ignored."""
        values = {key: value for key, value in raw.items() if key in cls.__dataclass_fields__}
        values["primary"] = Measure.from_dict(raw["primary"]) if raw.get("primary") else None
        return cls(**{**values, "notes": tuple(raw.get("notes") or ())})


@dataclass(frozen=True, repr=False)
class Result:
    """The result of a run; `status` is one of `STATUSES`, and never `completed` on an agent's word alone.

    Args:
        reason: one or two sentences on how the run came to this status.
        primary: the primary test metric, measured by m3b.
        metrics: every metric by name, as `Measure.to_dict` returns it.
        usage: actions, iterations, tokens, cost (US dollars) and wall time (seconds).
        roles: the usage of each role, with its status.
        integrity: `clean`, or what was found.
        acceptable: the range that the data card requires of the primary metric; the upper end may be open.
        patients: number of test patients, none of them seen in training; None if unknown, or if nothing was measured.
        patients_known: whether the data says which patient each image is of; None before an index was accepted. If not,
            images of one person may be on both sides of the split, and the metric may be too high for that reason.
        grouped_by: what keeps images on one side of the split, such as a column or a part of the file names.
        external: name -> result on an external test set.
        assumptions: what the request says of the data and nothing in the folder confirms.
        has_verdict: False if a model was measured on too few test patients for a verdict.
        test_looks: number of models whose scores on the locked test cases were computed; above 1 after added training.
        test_sample: `cases`, `all_cases`, `patients` and `all_patients` if only a sample of the locked test cases was measured;
            empty if all were.
    """

    status: Status
    reason: str
    request: str
    task: str = ""
    data_card: str = ""
    primary: Measure | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)
    roles: dict[str, dict[str, Any]] = field(default_factory=dict)
    integrity: str = ""
    run_dir: str = ""
    model_dir: str | None = None
    report: str | None = None
    acceptable: tuple[float, float | None] | None = None
    patients: int | None = None
    patients_known: bool | None = None
    grouped_by: str = ""
    external: dict[str, ExternalResult] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    has_verdict: bool = True
    test_looks: int = 0
    test_sample: dict[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.status == "completed"

    @property
    def tested_on(self) -> str:
        """The number of test cases and patients in words; '' if nothing was measured."""
        if self.primary is None or self.patients_known is None:
            return ""
        sample_note = f" ({describe_test_sample(self.test_sample)})" if self.test_sample else ""
        if self.patients_known:
            grouping_note = f" ({self.grouped_by})" if self.grouped_by else ""
            patients_text = f"{self.patients} patients that training never saw{grouping_note}"
            return f"{self.primary.n} cases of {patients_text}{sample_note}"
        return f"{self.primary.n} cases{sample_note}; {describe_unknown_patients(self.grouped_by)}"

    @property
    def looks_note(self) -> str:
        """How often the locked test cases were looked at; '' if it was at most once."""
        return describe_test_looks(self.test_looks)

    def __repr__(self) -> str:
        figure_text = format_measure(self._primary_to_dict()) or shorten(self.reason, 120)
        location = f", model: {self.model_dir}" if self.model_dir else f", run: {self.run_dir}" if self.run_dir else ""
        return f"<Result {self.status}: {figure_text}{location}>"

    def _repr_html_(self) -> str:
        rows = [
            *(("assumption", text) for text in self.assumptions),
            ("reason", self.reason), ("request", self.request), ("data", self.data_card), ("task", self.task),
            ("test figure", format_measure(self._primary_to_dict())), ("measured on", self.tested_on), ("looks", self.looks_note),
            *((f"external {name}", external_result.summary.partition(": ")[2]) for name, external_result in self.external.items()),
            ("integrity", self.integrity), ("model", self.model_dir), ("run", self.run_dir),
        ]  # fmt: skip
        return make_html_table(
            self.status, rows, self._metrics_to_html(), self._pictures_to_html(), self._report_link()
        )

    def _metrics_to_html(self) -> str:
        """Return a table of the metrics that are defined; '' if there is at most one."""
        rows = []
        for name, values in self.metrics.items():
            measure = (
                Measure.from_dict(values) if isinstance(values, dict) and values.get("value") is not None else None
            )
            if measure is not None and measure.low is not None and measure.high is not None:
                interval = f"{measure.low:.3f} to {measure.high:.3f}"
                baseline = "" if measure.baseline is None else f"{measure.baseline:.3f}"
                rows.append((name, f"{measure.value:.3f}", interval, measure.n, baseline))
        if len(rows) < 2:
            return ""
        return make_html_grid(("metric", "value", "95 % interval", "cases", "image-blind baseline"), rows)

    def _pictures_to_html(self) -> str:
        """Return some test cases with their predictions, which the report drew; '' if there are none."""
        return make_html_pictures(_read_pictures(Path(self.run_dir))) if self.run_dir else ""

    def _report_link(self) -> str:
        return make_html_link(self.report, "report") if self.report else ""

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; `acceptable` is stored in `primary`."""
        raw = {**asdict(self), "primary": self._primary_to_dict(), "assumptions": list(self.assumptions)}
        raw["external"] = {name: external_result.to_dict() for name, external_result in self.external.items()}
        del raw["acceptable"]
        return raw

    def _primary_to_dict(self) -> dict[str, Any] | None:
        if self.primary is None:
            return None
        return {**self.primary.to_dict(), "acceptable": None if self.acceptable is None else list(self.acceptable)}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Result:
        """Return the result that run.json holds; keys of other versions are ignored."""
        values = {key: value for key, value in raw.items() if key in cls.__dataclass_fields__}
        if isinstance(primary := raw.get("primary"), dict):
            values["primary"] = Measure.from_dict(primary)
            if bounds := primary.get("acceptable"):
                values["acceptable"] = (bounds[0], bounds[1])
        values["external"] = {
            name: ExternalResult.from_dict(external_result)
            for name, external_result in (raw.get("external") or {}).items()
        }
        return cls(**{**values, "assumptions": tuple(raw.get("assumptions") or ())})


PICTURES_FILE, MAX_PICTURES_BYTES = "pictures.json", 32 * 2**20
"""File of the run folder with the pictures of the report (`m3b.report.pictures`)."""


def _read_pictures(run_dir: Path) -> list[tuple[bytes, str]]:
    """Return the pictures of test cases with captions of label and answer; none if there are none or the file was damaged."""
    from m3b.isolation import untrusted
    from m3b.report import list_case_answers, read_run_files

    try:
        content = untrusted.read_json(run_dir, PICTURES_FILE, MAX_PICTURES_BYTES)
        cases = content["pictures"]["tests"]
        answers = list_case_answers(read_run_files(run_dir))
        captions = [_make_caption(case, *answers.get(case["key"], ("", ""))) for case in cases]
        return [(base64.b64decode(case["jpeg"]), caption) for case, caption in zip(cases, captions, strict=True)]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _make_caption(case: Mapping[str, Any], truth: str, answer: str) -> str:
    label = case["labels"] or truth
    parts = [
        f"labelled {shorten(label)}" if label and answer else label,
        f"predicted {shorten(answer)}" if answer else "",
    ]
    return ": ".join(filter(None, [Path(case["key"]).name, "; ".join(filter(None, parts))]))
