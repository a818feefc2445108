"""One place of a folder that class labels may come from."""

from __future__ import annotations

from dataclasses import dataclass, field

from m3b.data.spec.model import FromTable, SplitRule, Value
from m3b.data.spec.proposals.language import words

LABEL_WORDS = frozenset(
    words(
        "label class diagnosis finding target category disease dx grade outcome pathology condition type severity stage "
        "diagnose diagnostico diagnostic diagnosi klasse clase classe befund etikett etiqueta kategorie categoria categorie krankheit"
    )
)
"""Words by which columns and arrays of labels are called."""


@dataclass(frozen=True)
class LabelSource:
    """A place that labels may come from.

    Args:
        values: label -> files.
        named: how it is called: a column, a folder level.
        covered: share of the images that have a value.
        strength: of this kind of place, before the request is asked.
        weak: what is not certain unless the request names the classes.
        rows: whether `values` counts the rows of a table that names more than is there, and not files.
        apart: what speaks against the place and the images belonging together, whatever the request names.
        told: what shows which images a table speaks of.
        uncertain: of yes/no columns: rows that say neither.
        only_named: whether it is no place of labels at all unless the request names a class.
        only_told: whether it is none unless the request or a document says what each of its numbers means.
    """

    values: dict[str, int]
    sources: tuple[Value, ...]
    named: str
    title: str
    covered: float
    strength: float
    one_hot: bool = False
    separator: str = ""
    doubt: str = ""
    weak: str = ""
    apart: str = ""
    rows: bool = False
    only_named: bool = False
    only_told: bool = False
    split: SplitRule | None = None
    together: tuple[Value, ...] = ()
    patient: FromTable | None = None
    told: tuple[str, ...] = ()
    uncertain: dict[str, int] = field(default_factory=dict)
