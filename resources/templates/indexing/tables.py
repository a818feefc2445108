"""Cases of a table that names images and labels, and how its names lead to files."""

from __future__ import annotations

from pathlib import Path

from folder_layouts import Case, in_mask_folder, is_image, natural, stem
from rows import LIST

YES = ("1", "1.0", "true", "yes", "y", "t", "x", "+", "positive", "pos", "present")
NO = ("", "0", "0.0", "false", "no", "n", "f", "-", "negative", "neg", "absent", "-1", "-1.0", "uncertain", "nan", "na")


def join_tables(rows: list[dict[str, str]], others: list[dict[str, str]], on: str, file: Path) -> list[dict[str, str]]:
    """Rows with the columns of another table's row of the same value in `on` (`column`, or `mine=theirs`).

    Raises:
        SystemExit: there is no such column, or no value is in both.
    """
    mine, _, theirs = on.partition("=")
    shared = [name for name in (rows[0] if rows else ()) if others and name in others[0]]
    mine = mine or next(iter(shared), "")
    theirs = theirs or mine
    if not rows or not others or mine not in rows[0] or theirs not in others[0]:
        raise SystemExit(
            f"--join {file}: give --on COL or --on COL=COL; columns of both: {', '.join(shared) or 'none'}."
        )
    known: dict[str, dict[str, str]] = {}
    for other in others:
        known.setdefault(_folded(other[theirs]), other)
    joined = [{**known[key], **row} for row in rows if (key := _folded(row.get(mine, ""))) in known]
    print(f"joined on {mine}: {len(joined)} of {len(rows)} rows")
    if not joined:
        raise SystemExit(f"--join {file}: no value of {mine!r} is also in {theirs!r}.")
    return joined


def _folded(name: str) -> str:
    """Keys of two tables are the same whatever their case and an image's ending."""
    return stem(name.strip()).lower()


class Finder:
    """Finds the file that a table means by a path, a name, or a name without its ending."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.by_name: dict[str, list[Path]] = {}
        self.by_number: dict[int, list[Path]] = {}
        for path in sorted(folder.rglob("*"), key=lambda p: natural(p.as_posix())):
            if path.name.startswith("."):
                continue
            folderish = path.is_dir()
            if not folderish and not (path.is_file() and is_image(path.name)):
                continue
            bare = stem(path.name)
            for name in {path.name.lower(), bare.lower()}:
                self.by_name.setdefault(name, []).append(path)
            if bare.isdecimal() and not folderish:
                self.by_number.setdefault(int(bare), []).append(path)

    def find(self, name: str) -> Path | None:
        parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
        if not parts:
            return None
        if ".." not in parts and (direct := self.folder.joinpath(*parts)) and _exists(direct):
            return direct
        last = parts[-1].lower()
        found = self.by_name.get(last) or self.by_name.get(stem(last))
        if not found and last.isdecimal():
            found = self.by_number.get(int(last))
        if not found:
            return None
        tail = [part.lower() for part in parts]
        return min(found, key=lambda p: (-_same_tail([q.lower() for q in p.parts], tail), in_mask_folder(p)))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a text that is no name, such as a whole report
        return False


def _same_tail(one: list[str], other: list[str]) -> int:
    count = 0
    for a, b in zip(reversed(one), reversed(other), strict=False):
        if a != b:
            break
        count += 1
    return count


def from_table(
    rows: list[dict[str, str]],
    finder: Finder,
    *,
    image: str,
    labels: list[str],
    separator: str,
    patient: str,
    split: str,
) -> tuple[list[Case], list[str]]:
    """Cases of a table, and the image names for which there is no file.

    Several `labels` columns are read as one yes/no column a class. An unlabelled case of a single-label table has the
    one label "".
    """
    if len(labels) > 1:
        _only_yes_and_no(rows, labels)
    several = bool(separator) or any(LIST in row.get(labels[0], "") for row in rows)
    cases, absent = [], []
    for row in rows:
        path = finder.find(row.get(image, ""))
        if path is None:
            absent.append(row.get(image, ""))
            continue
        text = row.get(labels[0], "")
        if len(labels) > 1:
            values = [name for name in labels if row.get(name, "").lower() in YES]
        elif several:
            parts = text.replace(separator, LIST).split(LIST) if separator else text.split(LIST)
            values = [part.strip() for part in parts if part.strip()]
        else:
            values = [text]
        values = list(dict.fromkeys(values))
        cases.append(Case(path.as_posix(), values, row.get(patient, ""), row, row.get(split, "")))
    return cases, absent


def _only_yes_and_no(rows: list[dict[str, str]], labels: list[str]) -> None:
    for name in labels:
        other = {value for row in rows if (value := row.get(name, "")).lower() not in (*YES, *NO)}
        if other:
            raise SystemExit(
                f"--label with several columns wants yes/no columns; {name!r} holds {', '.join(sorted(other)[:5])}. "
                "Name one column."
            )


def join_rows(cases: list[Case]) -> list[Case]:
    """One case an image: rows that name the same file are put together, with all of their labels."""
    joined: dict[str, Case] = {}
    for case in cases:
        first = joined.setdefault(str(case.image), case)
        first.values = list(dict.fromkeys(v for v in (*first.values, *case.values) if v))
    return list(joined.values())
