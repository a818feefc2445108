"""Units of numbers in requests and names of columns, compound ones (`g/cm2`, `mg per decilitre`) too, in one spelling."""

from __future__ import annotations

import re

from m3b.dataset.words.lexicon import fold_text

SPELLINGS = {
    "months": "month months mo monat monate monaten mois meses",
    "years": "year years yr yrs jahr jahre jahren ans annees anos",
    "weeks": "week weeks wk wks wochen semaines semanas",
    "days": "day days tag tage tagen jours dias",
    "mm": "mm millimetre millimetres millimeter millimeters",
    "cm": "cm centimetre centimetres centimeter centimeters",
    "ml": "ml millilitre millilitres milliliter milliliters cc",
    "dl": "dl decilitre decilitres deciliter deciliters",
    "g": "g gram grams gramme grammes gramm",
    "mg": "mg milligram milligrams milligramme milligrammes milligramm",
    "kg": "kg kilogram kilograms kilogramm",
    "ug": "ug mcg microgram micrograms mikrogramm",
    "ng": "ng nanogram nanograms nanogramm",
    "mmol": "mmol millimole millimoles",
    "umol": "umol micromole micromoles",
    "%": "% percent percentage pct prozent pourcentage porcentaje",
    "HU": "hu hounsfield",
    "mmHg": "mmhg",
    "um": "um micrometre micrometres micrometer micrometers micron microns",
    "ms": "ms millisecond milliseconds",
    "bpm": "bpm",
}
ONLY_IN_COMPOUNDS = {
    "l": "l litre litres liter liters",
    "m": "m metre metres meter meters",
    "s": "s sec second seconds sekunde sekunden",
    "min": "min minute minutes",
    "h": "h hour hours stunde",
}
"""Units whose spelling alone is more often another word, or a code."""
_UNIT_OF = {
    text: unit for table in (SPELLINGS, ONLY_IN_COMPOUNDS) for unit, texts in table.items() for text in texts.split()
}
_NOT_ALONE = frozenset(text for texts in ONLY_IN_COMPOUNDS.values() for text in texts.split())
_ATOM = rf"(?:{'|'.join(sorted(map(re.escape, _UNIT_OF), key=len, reverse=True))})(?![^\W\d_])"
_POWER = r"(?:\^?(?P<power{0}>[23]))?"
_COMPOUND = (
    rf"(?P<top>{_ATOM}){_POWER.format(0)}"
    r"(?:\s*(?:{ratio})\s*(?P<named>square|cubic|quadrat|kubik)?\s*(?P<factor>\d+(?:\.\d+)?\s*)?"
    rf"(?P<below>{_ATOM}){_POWER.format(1)}(?:\s*/\s*(?P<factor2>\d+(?:\.\d+)?\s*)?(?P<below2>{_ATOM}){_POWER.format(2)})?)?"
)
_RATIO = r"/|\bper\b|\bpro\b|\bpar\b|\bpor\b"
_REQUESTED = re.compile(
    rf"(?:\b(?:in|as|en|als)\s+(?:an?\s+)?|[(\[]\s*){_COMPOUND.replace('{ratio}', _RATIO)}(?![\w/^])"
)
_OF_COLUMN = re.compile(rf"(?:^|[\s_(\[]){_COMPOUND.replace('{ratio}', _RATIO + r'|_per_|_')}\s*[)\]]?\s*$")


def find_requested_unit(request: str) -> str:
    """Return the unit of `... in months`, `as a percentage`, `(g/cm2)`; empty if a request names none."""
    return next((unit for match in _REQUESTED.finditer(_fold(request)) if (unit := _spell(match))), "")


def find_column_unit(name: str) -> str:
    """Return the unit that a column's name ends with: `boneage_months`, `HC (mm)`, `bmd_g_cm2`; empty if it has none."""
    return split_column_unit(name)[1]


def split_column_unit(name: str) -> tuple[str, str]:
    """Return the words of a column's name, and the unit that it ends with: `bone density` and `g` of `bone_density_g`."""
    words = re.sub(r"(?<=[a-z]{2})(?=[A-Z])", "_", name)
    text = _fold(words)
    match = _OF_COLUMN.search(text)
    unit = _spell(match) if match and match.start() else ""
    if match and unit:
        words = (words if len(words) == len(text) else text)[: match.start()]
    return " ".join(words.replace("_", " ").split()), unit


_CONVERTIBLE = (
    {"months", "years", "weeks", "days"},
    {"mm", "cm", "um", "m"},
    {"g", "mg", "kg", "ug", "ng"},
    {"ml", "dl", "l"},
)


def contradict(first: str, second: str) -> bool:
    """Return whether two units are known and measure different things (months and cm)."""
    return bool(first and second) and first != second and not any({first, second} <= units for units in _CONVERTIBLE)


def _fold(text: str) -> str:
    return fold_text(text.translate(str.maketrans("²³µμ", "23uu")))


def _spell(match: re.Match[str]) -> str:
    if not match["below"]:
        return "" if match["power0"] or match["top"] in _NOT_ALONE else _UNIT_OF[match["top"]]
    named = {"square": "2", "quadrat": "2", "cubic": "3", "kubik": "3"}.get(match["named"] or "", "")
    parts = [_UNIT_OF[match["top"]] + (match["power0"] or "")]
    for place, power in (("below", match["power1"] or named), ("below2", match["power2"])):
        if match[place]:
            factor = match["factor" if place == "below" else "factor2"] or ""
            parts.append(factor.strip() + _UNIT_OF[match[place]] + (power or ""))
    return "/".join(parts)
