"""What a model is given of a case beside its image, out of tables, headers and names."""

from __future__ import annotations

from collections.abc import Sequence

from m3b.data.kinds.covariates import MAX_TEXT
from m3b.data.records import Covariate as CovariateValue
from m3b.data.records import Record
from m3b.data.spec.cases import CaseDraft
from m3b.data.spec.model import Covariate
from m3b.data.spec.numbers import parsed
from m3b.data.spec.sources import Sources


def covariate_of(covariate: Covariate, sources: Sources, case: CaseDraft) -> CovariateValue:
    """The covariate of a case; None where the source says none, several, or one that stands for "not known"."""
    text = (sources.text(covariate.source, case) or "").strip()
    if not text:
        return None
    if covariate.kind == "category":
        return text[:MAX_TEXT]
    value = parsed(text)
    return None if value is None or value in covariate.codes else value


def told_covariates(records: Sequence[Record]) -> list[str]:
    """What models are given beside the image, and of how many cases each is not known, for people."""
    told = told_each(records)
    return [f"beside the image a model is given {', '.join(told)}"] if told else []


def told_each(records: Sequence[Record]) -> list[str]:
    """Each covariate by name, with the number of cases of which it is not known."""
    told = []
    for name in records[0].covariates if records else ():
        missing = sum(record.covariates.get(name) is None for record in records)
        told.append(f"{name} (unknown of {missing:,} cases)" if missing else name)
    return told
