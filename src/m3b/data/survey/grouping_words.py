"""What groups images by person or case, and why, for people and agents."""

from __future__ import annotations

from m3b.data.survey.relations import End, Grouping, Survey

WHY = {
    "tag_patient": "a DICOM tag of patients",
    "tag_study": "a DICOM tag of studies",
    "column_patient": "the column is called after patients",
    "column_case": "the column is called after cases",
    "column_source": "the column is called after what images were taken from",
    "column_unnamed": "a column without a name whose values recur",
    "word_patient": "the word before it says patient",
    "word_case": "the word before it says case",
    "source_word": "the word before it says what images were taken from",
    "side_follows": "left or right follows it",
    "folder_of_several": "each folder holds several files",
    "copies_agree": "copies of an image share it",
    "consecutive": "its values stand together",
    "augmentation": "the word after it says altered copy",
    "leading_number": "names begin with it",
    "column_alike": "a column that is called after patients has the same numbers",
}
"""Code of evidence -> what it says. Others are told as they are."""


def why(one: Grouping) -> str:
    """The evidence of a grouping in words."""
    return ", ".join(WHY.get(code, code) for code in one.evidence)


def where(survey: Survey, one: Grouping) -> str:
    """What a grouping goes by: a column, a tag, a folder, or a part of names."""
    return " and ".join(_end(survey, one.group, end) for end in one.ends)


def _end(survey: Survey, group: str, end: End) -> str:
    if end.kind == "column":
        table = next((table.path for table in survey.tables if table.id == end.owner), end.owner)
        return f"the column {end.name!r} of {table}"
    if end.kind == "tag":
        return f"the tag {end.name}"
    if end.kind == "member":
        return f"the value {end.name!r} of each file"
    if end.kind == "level":
        return f"the folders of level {int(end.name) + 1}" if end.name.isdigit() else f"the folders {end.name}"
    part = next((part for part in survey.group(group).parts if part.slot == end.name), None)
    if part is None:
        return f"{end.kind} {end.name}".strip()
    before = part.before.rpartition("/")[2]
    place = "folders" if end.name.startswith("level") else "names"
    return f"the {part.kind} after {before!r} in {place}" if before else f"the {part.kind} that begins {place}"
