"""Edits of a finished run folder, alone, in pairs and with all digests made anew, and what `m3b verify` says of each.

`python tests/run/edit_matrix.py` writes the tables of docs/security.md; test_edit_matrix.py compares the page with them.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "pipeline"))

from pipeline_kit import REQUEST, actor, make_spots, play

from m3b import Pipeline, verify
from m3b.journal import digest_line
from m3b.models.checksums import hash_files, sha256_of
from m3b.run.folder import RunFolder
from m3b.run.record_digests import digest_entries, hash_recorded_files
from m3b.run.verification import VerificationResult

PAGE = Path(__file__).resolve().parents[2] / "docs/security.md"
UNCOMPARED = ("work", "scratch", "logs", "survey", "checks", "pictures.json", "manifest-proposed.json", "manifest.html")
"""Parts of a run folder that no comparison reads; copies leave them out."""


@dataclass(frozen=True)
class Edit:
    """An edit of a finished run.

    Args:
        code: of the comparison that finds it; empty if none does.
        detail: part of what that comparison says.
        state: of that comparison.
    """

    change: Callable[[Path], object]
    code: str = ""
    detail: str = ""
    state: str = "changed"


# --- changes -----------------------------------------------------------------------------------------------------


def rewrite_lines(run: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    file = run / "journal.jsonl"
    file.write_bytes(b"".join(change(file.read_bytes().splitlines(keepends=True))))


def replace_text(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    if old not in text:
        raise ValueError(f"{file.name} has no {old}")
    file.write_text(text.replace(old, new, 1), encoding="utf-8")


def update_json(file: Path, change: Callable[[Any], object]) -> None:
    content = json.loads(file.read_text(encoding="utf-8"))
    change(content)
    file.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")


def edit_record(*keys: str, value: object) -> Callable[[Path], object]:
    def change(record: dict[str, Any]) -> None:
        for key in keys[:-1]:
            record = record[key]
        record[keys[-1]] = value

    return lambda run: update_json(run / "run.json", change)


def invert_answers(file: Path) -> None:
    def change(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            row["probabilities"] = {name: 1.0 - value for name, value in row["probabilities"].items()}

    update_json(file, change)


def unbind(line: bytes) -> bytes:
    return (
        json.dumps({key: value for key, value in json.loads(line).items() if key not in ("n", "prev")}).encode() + b"\n"
    )


def append_line(run: Path) -> None:
    def change(lines: list[bytes]) -> list[bytes]:
        event = {"kind": "note", "role": "", "at": 1.0, "data": {"text": "all is well", "iteration": 0}}
        line = {"n": len(lines) + 1, "prev": digest_line(lines[-1]), **event}
        return [*lines, json.dumps(line).encode() + b"\n"]

    rewrite_lines(run, change)


def add_external_set(run: Path) -> None:
    (run / "locked/external/other").mkdir(parents=True)
    (run / "locked/external/other/cases.json").write_text("[]")


def forget_end(record: dict[str, Any]) -> None:
    record.update(status="working", reason="", cause="", result=None)
    for key in ("ended", "journal"):
        record.pop(key, None)


EDITS: dict[str, Edit] = {
    "`journal.jsonl`: a word": Edit(
        lambda run: replace_text(run / "journal.jsonl", "Indexed.", "Ignored."), "journal", "the line before"),
    "`journal.jsonl`: a line removed": Edit(lambda run: rewrite_lines(run, lambda at: at[:4] + at[5:]), "journal", "line 5"),
    "`journal.jsonl`: two lines exchanged": Edit(
        lambda run: rewrite_lines(run, lambda at: [*at[:4], at[5], at[4], *at[6:]]), "journal", "line 5"),
    "`journal.jsonl`: a line appended": Edit(append_line, "journal_end", "added"),
    "`journal.jsonl`: half a line appended": Edit(
        lambda run: (run / "journal.jsonl").open("ab").write(b'{"n": 1, "kind": "no'), "journal_end", "incomplete line"),
    "`journal.jsonl`: a line doubled": Edit(
        lambda run: rewrite_lines(run, lambda at: [*at[:5], at[4], *at[5:]]), "journal", "line 6"),
    "`journal.jsonl`: the last line removed": Edit(lambda run: rewrite_lines(run, lambda at: at[:-1]), "result", "lines are missing"),
    "`journal.jsonl`: the last three lines removed": Edit(
        lambda run: rewrite_lines(run, lambda at: at[:-3]), "result", "lines are missing"),
    "`journal.jsonl`: half of it removed": Edit(
        lambda run: rewrite_lines(run, lambda at: at[: len(at) // 2]), "journal_end", "provenance.json names line"),
    "`journal.jsonl`: emptied": Edit(lambda run: (run / "journal.jsonl").write_bytes(b""), "result", "lines are missing"),
    "`journal.jsonl`: removed": Edit(lambda run: (run / "journal.jsonl").unlink(), "journal", "missing"),
    "`journal.jsonl`: `n` and `prev` removed from one line": Edit(
        lambda run: rewrite_lines(run, lambda at: [*at[:4], unbind(at[4]), *at[5:]]), "journal", "not bound"),
    "`journal.jsonl`: `n` and `prev` removed from all lines": Edit(
        lambda run: rewrite_lines(run, lambda at: list(map(unbind, at))), "journal", "early version"),
    "`run.json`: the status": Edit(edit_record("status", value="below_range"), "result", "status"),
    "`run.json`: the reason": Edit(edit_record("reason", value="excellent"), "result", "reason"),
    "`run.json`: the primary figure": Edit(edit_record("result", "primary", "value", value=0.999), "result", "primary"),
    "`run.json`: another metric": Edit(edit_record("result", "metrics", "accuracy", "value", value=0.999), "result", "metrics"),
    "`run.json`: an entry added to the result": Edit(edit_record("result", "prize", value="gold"), "result", "prize"),
    "`run.json`: the request": Edit(edit_record("request", value="Find tumours"), "result", "request"),
    "`run.json`: an option": Edit(edit_record("options", "max_cost", value=900.0), "settings", "options"),
    "`run.json`: the option `sandbox`": Edit(edit_record("options", "sandbox", value="off"), "settings", "options.sandbox"),
    "`run.json`: the sandbox": Edit(edit_record("sandbox", "name", value="landlock"), "settings", "sandbox"),
    "`run.json`: the list of sandboxes": Edit(edit_record("sandboxes", value=["off"]), "settings", "sandboxes"),
    "`run.json`: the versions": Edit(edit_record("versions", "m3b", value="9.9"), "settings", "versions"),
    "`run.json`: the models": Edit(edit_record("llm", "default", value="local"), "settings", "llm"),
    "`run.json`: the data": Edit(edit_record("data", value=[]), "settings", "data"),
    "`run.json`: the workspace": Edit(edit_record("workspace", "shipped", value=False), "settings", "workspace"),
    "`run.json`: the seed": Edit(edit_record("seed", value=7), "settings", "seed"),
    "`run.json`: the start": Edit(edit_record("started", value=1.0), "settings", "started"),
    "`run.json`: the end": Edit(edit_record("ended", value=1.0), "result", "ended"),
    "`run.json`: the format": Edit(edit_record("format", value=1), "settings", "format"),
    "`run.json`: the stages": Edit(edit_record("stages", value=["data_engineer"]), "settings", "stages"),
    "`run.json`: what the user set": Edit(edit_record("training", value={"network": "resnet50"}), "settings", "training"),
    "`run.json`: the manifest that the user gave": Edit(edit_record("given", value={"manifest": "m.json"}), "settings", "given"),
    "`run.json`: the id": Edit(edit_record("id", value="other"), "settings", "id"),
    "`run.json`: the external sets": Edit(edit_record("external", value={"other": ["/data", ""]}), "settings", "external"),
    "`run.json`: an entry added": Edit(edit_record("reviewed", value=True), "settings", "reviewed"),
    "`run.json`: the journal's position": Edit(
        lambda run: update_json(run / "run.json", lambda record: record.pop("journal")), "journal_end", "does not name"),
    "`run.json`: set back to `working`": Edit(
        lambda run: update_json(run / "run.json", forget_end), "result", "m3b resume", "unknown"),
    "`ledger.jsonl`": Edit(
        lambda run: replace_text(run / "ledger.jsonl", '"bytes": 1', '"bytes": 2'), "recorded_files", "ledger.jsonl was changed"),
    "`ledger.jsonl`: removed": Edit(lambda run: (run / "ledger.jsonl").unlink(), "recorded_files", "ledger.jsonl is missing"),
    "`data_audit.json`": Edit(lambda run: (run / "data_audit.json").write_text("{}"), "recorded_files", "data_audit.json"),
    "`locked/scores.json`": Edit(lambda run: replace_text(run / "locked/scores.json", "0.", "0.9"), "recorded_files", "scores.json"),
    "`locked/hashes.json`": Edit(lambda run: (run / "locked/hashes.json").write_text("{}"), "recorded_files", "hashes.json"),
    "`locked/raw.json`": Edit(lambda run: (run / "locked/raw.json").write_text("{}"), "recorded_files", "raw.json"),
    "`locked/external/`: cases added": Edit(add_external_set, "recorded_files", "cases.json was added"),
    "`locked/`: a test label": Edit(
        lambda run: replace_text(run / "locked/Datapath/test.json", "plain", "spot"), "index", "test.json"),
    "`locked/`: the measured answers": Edit(
        lambda run: invert_answers(run / "locked/predictions.json"), "answers", "predictions.json"),
    "`locked/`: the measured answers removed": Edit(
        lambda run: (run / "locked/predictions.json").unlink(), "answers", "predictions.json"),
    "`locked/`: a kept answer": Edit(
        lambda run: replace_text(run / "locked/answers/answers.json", "probabilities", "chances"),
        "kept_answers", "answers.json"),
    "`locked/`: the measured weights": Edit(
        lambda run: (run / "locked/model/model.safetensors").write_bytes(b"x"), "measured_model", "model.safetensors"),
    "`locked/`: a file added to the measured model": Edit(
        lambda run: (run / "locked/model/notes.txt").write_text("x"), "measured_model", "notes.txt was added"),
    "`model/`: the weights": Edit(
        lambda run: (run / "model/model.safetensors").write_bytes(b"x"), "delivered_model", "model.safetensors"),
    "`model/`: `predict.py`": Edit(lambda run: (run / "model/predict.py").write_text("x"), "delivered_model", "predict.py"),
    "`model/`: `numpy.py` added": Edit(
        lambda run: (run / "model/numpy.py").write_text("x"), "delivered_model", "numpy.py was added"),
    "`model/`: `cases.csv` added": Edit(
        lambda run: (run / "model/cases.csv").write_text("a,b"), "delivered_model", "cases.csv was added"),
    "`model/`: `.x.pkl` added": Edit(lambda run: (run / "model/.x.pkl").write_bytes(b"x"), "delivered_model", ".x.pkl was added"),
    "`model/`: a link added": Edit(
        lambda run: (run / "model/data").symlink_to("/etc/hosts"), "delivered_model", "data was added"),
    "`model/`: `metrics.json`": Edit(
        lambda run: replace_text(run / "model/metrics.json", "0.", "0.9"), "delivered_model", "metrics.json"),
    "`model/`: `provenance.json`": Edit(
        lambda run: replace_text(run / "model/provenance.json", '"clean"', '"very"'), "delivered_model", "provenance.json"),
    "`model/`: removed": Edit(lambda run: shutil.rmtree(run / "model"), "delivered_model", "missing"),
    "`model/`: `README.md`": Edit(
        lambda run: (run / "model/README.md").write_text("mine"), "model_card", "README.md", "unknown"),
    "`report.html`": Edit(lambda run: (run / "report.html").write_text("<p>AUROC 1.000</p>")),
}  # fmt: skip


# --- a forger: everything that a text editor and a hash function can make consistent -------------------------------


def make_consistent(run: Path, original_hashes: Mapping[str, str]) -> None:
    """Make the digests and results in journal, run.json and provenance.json those of the files present."""
    record, provenance_file = json.loads((run / "run.json").read_text()), run / "model/provenance.json"
    lines = (run / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    files, recorded_files = hash_files(run / "model"), json.loads(provenance_file.read_text())["files"]
    if files != recorded_files:
        update_json(provenance_file, lambda provenance: provenance.update(files=files))
    replacements = {
        digest: hashes[name]
        for hashes in [hash_tree(run)]
        for name, digest in original_hashes.items()
        if name not in UNHASHED_FILES and name in hashes and hashes[name] != digest
    }
    bound = list[bytes]()
    for number, line in enumerate(lines, start=1):
        event = json.loads(re.sub(r"\b[0-9a-f]{64}\b", lambda match: replacements.get(match[0], match[0]), line))
        data = event["data"]
        match event["kind"]:
            case "run_started":
                data.update(request=record["request"], sandbox=record["sandbox"])
                data["record"] = digest_entries({**record, "status": "working", "reason": "", "cause": ""})
            case "files":
                data.update(hashes=hash_recorded_files(RunFolder(run)), record=digest_entries(record))
            case "run_ended" if record["result"]:
                result = {**record["result"], **{key: record[key] for key in ("status", "reason", "request")}}
                record["result"] = event["data"] = result
                event["at"] = record["ended"]
            case "delivered":
                provenance = json.loads(provenance_file.read_text())
                position = provenance["journal"]
                if position["head"] != (head := digest_line(bound[position["lines"] - 1])):
                    update_json(provenance_file, lambda content, head=head: content["journal"].update(head=head))
                data["hashes"] = {**files, "provenance.json": sha256_of(provenance_file)}
        event.update(n=number, prev=digest_line(bound[-1]) if bound else "")
        bound.append(json.dumps({"n": number, "prev": event["prev"], **event}, ensure_ascii=False).encode() + b"\n")
    rewrite_lines(run, lambda lines: bound)
    if not bound or event["kind"] != "run_ended":
        forget_end(record)
    elif record["result"]:
        record["journal"] = {"lines": len(bound), "head": digest_line(bound[-1])}
    if record != json.loads((run / "run.json").read_text()):
        (run / "run.json").write_text(json.dumps(record, indent=1))


UNHASHED_FILES = ("journal.jsonl", "run.json", "model/provenance.json")


# --- the matrix ----------------------------------------------------------------------------------------------------


def make_run(top: Path) -> Path:
    result = Pipeline(actor(play()), data=[make_spots(top / "spots")], out=top / "run").run(REQUEST)
    assert result.status == "completed", result.reason
    return top / "run"


def hash_tree(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): "link" if path.is_symlink() else sha256_of(path)
        for path in folder.rglob("*")
        if path.is_file()
    }


class EditMatrix:
    """One copy of a finished run, edited, verified and restored again and again."""

    def __init__(self, run: Path, top: Path) -> None:
        self.copy = top / "copy"
        shutil.copytree(run, self.copy, ignore=lambda at, names: UNCOMPARED if Path(at) == run else ())
        self._contents = {path: path.read_bytes() for path in self.copy.rglob("*") if path.is_file()}
        self._hashes = hash_tree(self.copy)
        self.fingerprint = verify(self.copy).fingerprint

    @cached_property
    def singles(self) -> dict[str, VerificationResult | None]:
        return {name: self.verify_edited(edit.change) for name, edit in EDITS.items()}

    @cached_property
    def pairs(self) -> dict[tuple[str, str], VerificationResult]:
        return self.verify_pairs(list(EDITS))

    def verify_pairs(self, names: Sequence[str]) -> dict[tuple[str, str], VerificationResult]:
        """Return what verify says of pairs of edits, without those of which one undoes the other or makes it impossible."""
        trees = {name: self._hash_edited(name) for name in names}
        results = {
            (first, second): self.verify_edited(
                EDITS[first].change, EDITS[second].change, unless=(self._hashes, trees[second])
            )
            for first, second in combinations(names, 2)
        }
        return {pair: result for pair, result in results.items() if result is not None}

    def _hash_edited(self, name: str) -> dict[str, str]:
        try:
            EDITS[name].change(self.copy)
            return hash_tree(self.copy)
        finally:
            self._restore()

    def verify_edited(
        self, *changes: Callable[[Path], object], expect: str = "", unless: Sequence[Mapping[str, str]] = ()
    ) -> VerificationResult | None:
        """Return what verify says after changes; None if one finds nothing to edit, or if they lead to a tree in `unless`."""
        try:
            for change in changes:
                change(self.copy)
            return None if unless and hash_tree(self.copy) in unless else verify(self.copy, expect)
        except (OSError, ValueError, LookupError, TypeError):
            return None
        finally:
            self._restore()

    def verify_forged(self, edit: Edit, *, expect: str = "") -> VerificationResult | None:
        """Return what verify says after an edit and `make_consistent`; None too if that undoes the edit."""
        changes = edit.change, lambda run: make_consistent(run, self._hashes)
        return self.verify_edited(*changes, expect=expect, unless=(self._hashes,))

    def _restore(self) -> None:
        for path in sorted(self.copy.rglob("*"), reverse=True):
            if path.is_symlink() or (path.is_file() and path not in self._contents):
                path.unlink()
            elif path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        for path, content in self._contents.items():
            if not path.is_file() or path.read_bytes() != content:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)


# --- the tables of the page ----------------------------------------------------------------------------------------


def describe_outcome(result: VerificationResult | None) -> str:
    """Return the codes of what was found, or of what is only named, as `unknown`."""
    if result is None:
        return "-"
    changed = [f"`{comparison.code}`" for comparison in result.comparisons if comparison.state == "changed"]
    unknown = [f"`{comparison.code}` unknown" for comparison in result.comparisons if comparison.state == "unknown"]
    return ", ".join(dict.fromkeys(changed or unknown)) or "**not found**"


def area_of(edit_name: str) -> str:
    """Return the file or top folder that an edit changes, as its name says."""
    name = edit_name.split("`")[1]
    return f"`{name.split('/')[0]}/`" if "/" in name else f"`{name}`"


def make_edit_table(matrix: EditMatrix) -> str:
    rows = [["edit", "found by", "with all digests made anew", "and `--expect`"], ["---"] * 4]
    for name, edit in EDITS.items():
        forged = matrix.verify_forged(edit)
        with_expect = matrix.verify_forged(edit, expect=matrix.fingerprint)
        expect_cell = "-" if with_expect is None else "**not found**" if with_expect.ok else "found"
        rows.append([name, describe_outcome(matrix.singles[name]), describe_outcome(forged), expect_cell])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def make_pair_table(matrix: EditMatrix) -> str:
    """Return found / tried pairs for each pair of areas."""
    areas = list(dict.fromkeys(map(area_of, EDITS)))
    tried, caught = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for (first, second), result in matrix.pairs.items():
        tried[area_of(first), area_of(second)] += 1
        caught[area_of(first), area_of(second)] += not result.ok
    rows = [["", *areas], ["---"] * (len(areas) + 1)]
    rows += [
        [row, *(f"{caught[row, column]} / {tried[row, column]}" if tried[row, column] else "" for column in areas)]
        for row in areas
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def fill_page(text: str, tables: Mapping[str, str]) -> str:
    """Return the page with its generated parts replaced by tables of the same names."""
    for name, table in tables.items():
        pattern = re.compile(rf"(<!-- generated: {name} -->\n).*?(<!-- /generated -->)", re.DOTALL)
        text, count = pattern.subn(lambda match, table=table: f"{match[1]}\n{table}\n\n{match[2]}", text)
        if count != 1:
            raise ValueError(f"the page has {count} parts called {name}")
    return text


def make_tables(matrix: EditMatrix) -> dict[str, str]:
    return {"single edits": make_edit_table(matrix), "pairs of edits": make_pair_table(matrix)}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        tables = make_tables(EditMatrix(make_run(Path(folder)), Path(folder)))
    PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8"), tables), encoding="utf-8")
