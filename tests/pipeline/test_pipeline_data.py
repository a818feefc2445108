"""Bad input: data that cannot serve. Each ends in the right status, with what was found and what to do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from pipeline_kit import (
    MAKE_INDEX,
    REQUEST,
    actor,
    call,
    check_end,
    choice,
    clean_environment,
    combine_calls,
    m3b_command,
    make_spots,
    make_table,
    of_kind,
    play,
    say,
    script,
    write,
)  # fmt: skip

from m3b import Pipeline
from m3b.errors import DataError, LLMError, UsageError
from m3b.testing.scripted_model import llm_error

STOP = "Far enough for this test."
XRAYS = "Build a model that detects opacities on chest X-rays"


@pytest.fixture
def by_rules(tmp_path: Path):
    """The embedded rules do the selection and the index; the run then ends on purpose."""

    def run(data: Path | list[Path], request: str = REQUEST, **options):
        llm = {"default": "rules", "module_architect": actor(play(module=[llm_error(LLMError, STOP)]))}
        sources = data if isinstance(data, list) else [data]
        return Pipeline(llm, data=sources, out=tmp_path / "run", **options).run(request)

    return run


def indexed(result) -> dict:
    """The index that was accepted, before the run ended on purpose."""
    assert result.reason == STOP
    (index,) = [a["value"] for a in of_kind(Path(result.run_dir), "artifact") if a["artifact"] == "index"]
    return index


# --- folders -----------------------------------------------------------------------------------------------------


def test_no_data_at_all(tmp_path: Path) -> None:
    model = actor()
    with pytest.raises(UsageError, match=r"--data.*folder"):
        Pipeline(model, out=tmp_path / "run").run(REQUEST)
    assert model.requests == [], "not a token is spent on it"
    assert not (tmp_path / "run").exists()


def test_a_folder_that_is_empty(tmp_path: Path, build) -> None:
    (tmp_path / "nothing" / "below").mkdir(parents=True)
    (tmp_path / "nothing" / ".DS_Store").write_text("x")
    model = actor()
    with pytest.raises(UsageError, match=r"nothing holds no files.*--data"):
        build(llm=model, data=tmp_path / "nothing")
    assert model.requests == []
    assert not (tmp_path / "run").exists()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no folder .*gone.*--data"):
        Pipeline(actor(), data=[tmp_path / "gone"], out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_card_whose_folder_is_gone(tmp_path: Path) -> None:
    card = {"name": "Spots", "description": "Drawn spots.", "path": str(tmp_path / "gone")}
    with pytest.raises(UsageError, match=r"gone is not there.*path"):
        Pipeline(actor(), data=[card], out=tmp_path / "run").run(REQUEST)
    assert not (tmp_path / "run").exists()


def as_ordinary_user() -> list[str]:
    """Words before a command that take root's rights over files away; skips where root cannot be reined in."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not there to take root's rights away")
    dropped_capabilities = "-dac_override,-dac_read_search"
    return ["setpriv", f"--inh-caps={dropped_capabilities}", f"--bounding-set={dropped_capabilities}"]


def test_a_folder_that_nobody_may_read(tmp_path: Path) -> None:
    """Without root's right to read everything."""
    closed = make_spots(tmp_path / "closed", patients=4)
    closed.chmod(0)
    out = tmp_path / "open" / "run"
    out.parent.mkdir()
    command = m3b_command(
        "run", REQUEST, "--llm", "rules", "--data", closed, "--out", out, "--sandbox", "off", "--json"
    )
    env = {**clean_environment(), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ended = subprocess.run(
            [*as_ordinary_user(), *command], env=env, cwd=out.parent, capture_output=True, text=True, timeout=900
        )
    finally:
        closed.chmod(0o755)
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    assert str(closed) in ended.stderr
    assert "permissions" in ended.stderr
    assert not out.exists()


def test_images_that_nobody_may_read(tmp_path: Path) -> None:
    """The reason is the permission, not the image."""
    data = make_spots(tmp_path / "spots", patients=12)
    for image in data.glob("*/*.png"):
        image.chmod(0)
    command = m3b_command("look", data, REQUEST, "--task", "diagnosis", "--json")
    ended = subprocess.run([*as_ordinary_user(), *command], capture_output=True, text=True, timeout=900, check=False)
    assert "Traceback" not in ended.stderr
    assert "ermission" in ended.stdout + ended.stderr


def test_the_run_folder_inside_the_data(spots: Path) -> None:
    with pytest.raises(UsageError, match="lie inside the data"):
        Pipeline(actor(), data=[spots], out=spots / "run").run(REQUEST)
    shutil.rmtree(spots / "run", ignore_errors=True)


def test_an_empty_request(build) -> None:
    with pytest.raises(UsageError, match="empty"):
        build(request="  \n")


# --- what is asked -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_text",
    ["Build a model that finds retinal bleeding on fundus photographs", "Segment the liver on abdominal CT volumes"],
)
def test_no_data_set_fits_by_rules(tmp_path: Path, by_rules, request_text: str) -> None:
    folder = tmp_path / "chest"
    make_spots(folder / "images", patients=4)
    (folder / "README.md").write_text("# Chest X-rays\nFrontal chest radiographs, with and without pneumonia.\n")
    result = by_rules(folder, request_text)
    check_end(result, "no_dataset")
    assert len(result.reason) > 40


def test_a_model_that_finds_no_data_set(build) -> None:
    reason = "No card holds knee MRI; only drawn spots are here."
    result = build(selection=[choice("spots", data_card=None, reason=reason)])
    check_end(result, "no_dataset", reason)


def test_a_model_that_insists_on_a_card_that_is_not_there(build) -> None:
    result = build(selection=[choice("Atlantis")], max_iterations=2)
    check_end(result, "no_dataset", "Atlantis", "spots")


@pytest.mark.parametrize(
    "request_text",
    [
        "Erstelle ein Modell, das Verschattungen auf Röntgenbildern der Lunge erkennt",
        "建立一个在胸部X光片上检测肺炎的模型",
    ],
)
def test_a_request_in_another_language(tmp_path: Path, by_rules, request_text: str) -> None:
    rows = [[f"c{n:03d}.png", f"P{n:03d}", ("clear", "spot")[n % 2]] for n in range(40)]
    folder = make_table(tmp_path / "chest-xrays", rows)
    (folder / "README.md").write_text(
        "# Chest X-rays\nFrontal chest radiographs; `finding` is clear or spot (pneumonia).\n"
    )
    result = by_rules(folder, request_text)
    check_end(result, "failed")
    assert indexed(result)["cases"]["train"] >= 24
    assert result.request == request_text
    assert json.loads((Path(result.run_dir) / "run.json").read_text(encoding="utf-8"))["request"] == request_text


# --- what the images and labels are ------------------------------------------------------------------------------


def test_one_class_only(tmp_path: Path, by_rules) -> None:
    folder = make_table(tmp_path / "one", [[f"c{n:03d}.png", f"P{n:03d}", "plain"] for n in range(30)])
    result = by_rules(folder)
    check_end(result, "no_dataset", "one class", "plain by {cases.finding}", "another class")


def test_one_class_folder_only(tmp_path: Path, by_rules) -> None:
    folder = make_spots(tmp_path / "spots", patients=30)
    shutil.rmtree(folder / "spot")
    check_end(by_rules(folder, max_iterations=1), "no_dataset", "one class", "plain")


def test_a_model_that_gives_the_data_up(build) -> None:
    reason = "Every picture is of the phantom; export patients' scans."
    result = build(index=[say(json.dumps({"unusable": reason}))])
    check_end(result, "rejected_data", reason)
    assert result.usage["iterations"] == 0


def test_one_class_in_the_index(tmp_path: Path, build) -> None:
    """The model writes an index all the same, and insists."""
    folder = make_spots(tmp_path / "spots", patients=30)
    shutil.rmtree(folder / "spot")
    result = build(data=folder, max_iterations=1)
    check_end(result, "rejected_data", "Only one class", "at least two", "plain: 15")


def test_some_images_do_not_open(tmp_path: Path, by_rules) -> None:
    folder = make_spots(tmp_path / "spots", patients=60)
    for number in (0, 1, 2):
        file = next(folder.glob(f"*/p{number:03d}.png"))
        file.write_bytes((file.read_bytes()[:60], b"", b"<html>404</html>")[number])
    result = by_rules(folder)
    check_end(result, "failed")
    assert sum(indexed(result)["cases"].values()) == 57
    assert any(
        "3 files are left out: the image does not open" in e["text"] for e in of_kind(Path(result.run_dir), "note")
    )


def test_a_model_is_told_which_images_do_not_open(tmp_path: Path, build) -> None:
    folder = make_spots(tmp_path / "spots", patients=60)
    (folder / "plain" / "p000.png").write_bytes(b"not a picture")
    result = build(data=folder, max_iterations=1)
    check_end(result, "failed", "1 of 60 images do not open", "p000.png")
    faults = [fault for e in of_kind(Path(result.run_dir), "check") for fault in e["faults"]]
    assert any("p000.png" in fault for fault in faults)


def test_no_image_opens(tmp_path: Path, build) -> None:
    folder = make_spots(tmp_path / "spots", patients=24)
    for file in folder.glob("*/*.png"):
        file.write_bytes(b"gone bad " + file.name.encode())
    result = build(data=folder, max_iterations=1)
    check_end(result, "rejected_data", "None of the 24 images opens")


def test_no_image_opens_by_rules(tmp_path: Path, by_rules) -> None:
    folder = make_spots(tmp_path / "spots", patients=24)
    for file in folder.glob("*/*.png"):
        file.write_bytes(b"gone bad " + file.name.encode())
    check_end(by_rules(folder), "no_dataset", "None of the images opens", "24")


def test_a_table_that_names_absent_images(tmp_path: Path, by_rules) -> None:
    rows = [[f"c{n:03d}.png", f"P{n:03d}", ("plain", "spot")[n % 2]] for n in range(40)]
    rows += [[f"absent{n}.png", f"Q{n}", "spot"] for n in range(5)]
    result = by_rules(make_table(tmp_path / "scans", rows))
    check_end(result, "failed")
    index = indexed(result)
    assert sum(index["cases"].values()) == 40
    assert sum(index["counts"][split]["spot"] for split in ("train", "test")) == 20


def test_an_index_that_names_absent_images(build) -> None:
    bad = MAKE_INDEX.replace("for split, rows in cases.items():", _PLUS_ONE + "for split, rows in cases.items():", 1)
    result = build(
        index=[combine_calls(write({"m.py": bad}), script("python m.py")), say("Indexed.")], max_iterations=1
    )
    check_end(result, "failed", "1 of 61 cases name files that are not there", "lost.png")


_PLUS_ONE = (
    'cases["train"].append({"image_path": "data/spots/plain/lost.png", "labels": ["plain"], "patient": "lost"})\n'
)


def test_labels_outside_the_vocabulary(build) -> None:
    bad = MAKE_INDEX.replace('"labels": [label]', '"labels": [label if n else "mystery"]')
    result = build(
        index=[combine_calls(write({"m.py": bad}), script("python m.py")), say("Indexed.")], max_iterations=1
    )
    check_end(result, "failed", "'mystery'", "label_dict.json")


def test_other_classes_than_selected(build) -> None:
    result = build(selection=[choice("spots", classes=["dull", "shiny"])], max_iterations=1)
    check_end(result, "failed", "dull, shiny", "plain, spot")


def test_classes_are_renamed_without_another_manifest(build) -> None:
    """The manifest is copied once; a reply with names that do not fit is refused, the next one renames the classes."""
    copy = call("copy_files", source="Datapath/proposals/1.json", destination="Datapath/manifest.json")
    result = build(
        selection=[choice("spots", classes=["shiny", "dull"])],
        index=[
            copy,
            say("The folders are the classes."),
            say(json.dumps({"class_names": {"plain": "dull"}})),
            say("As before: " + json.dumps({"class_names": {"plain": "dull", "spot": "shiny"}})),
        ],
        module=[llm_error(LLMError, STOP)],
    )
    index, run = indexed(result), Path(result.run_dir)
    assert index["classes"] == ["dull", "shiny"]
    assert json.loads((run / "manifest.json").read_text())["labels"]["classes"] == {
        "dull": ["plain"],
        "shiny": ["spot"],
    }
    codes = [
        message["facts"][0]["codes"]
        for message in of_kind(run, "message", "data_engineer")
        if message["facts"] and message["facts"][0]["kind"] == "rejection"
    ]
    assert codes == [["other_classes"], ["class_names_unusable"]]


def test_the_same_image_in_two_classes(tmp_path: Path, build) -> None:
    folder = make_spots(tmp_path / "spots", patients=60)
    shutil.copy(folder / "plain" / "p000.png", folder / "spot" / "p001.png")
    result = build(data=folder, max_iterations=1)
    check_end(result, "failed", "under different labels", "p000.png")


def test_the_same_image_in_two_classes_by_rules(tmp_path: Path, by_rules) -> None:
    folder = make_spots(tmp_path / "spots", patients=60)
    shutil.copy(folder / "plain" / "p000.png", folder / "spot" / "p001.png")
    result = by_rules(folder)
    check_end(result, "failed")
    assert sum(indexed(result)["cases"].values()) == 58, "both copies are left out: nobody knows which is right"


def test_a_patient_on_both_sides(build) -> None:
    bad = MAKE_INDEX.replace('"patient": file.stem', '"patient": file.stem[:3]')
    result = build(
        index=[combine_calls(write({"m.py": bad}), script("python m.py")), say("Indexed.")], max_iterations=0
    )
    check_end(result, "failed", "in train and in test")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/etc/passwd", "may"),
        ("../../run.json", "may"),
        ("data/spots/../../../locked/x", "may"),
        ("locked/test.json", ""),
    ],
)
def test_a_path_outside_the_roots(build, path: str, words: str) -> None:
    """Refused, with the roots that are allowed; the agent can go on."""
    result = build(
        selection=[call("read_files", paths=[path]), choice("spots")], index=[llm_error(LLMError, STOP)]
    )  # fmt: skip
    check_end(result, "failed", STOP)
    (answer,) = of_kind(Path(result.run_dir), "result", "task_manager")
    assert answer["is_error"]
    assert "root:" not in answer["text"]
    assert "data/spots" in answer["text"] or "no file" in answer["text"].lower() or "not" in answer["text"]
    if words:
        assert "data/spots" in answer["text"], answer["text"]
        assert "resources" in answer["text"]


@pytest.mark.confined
def test_raw_data_cannot_be_written(build, spots: Path) -> None:
    before = sorted(spots.rglob("*"))
    result = build(
        index=[
            write({"data/spots/new.txt": "x"}),
            script("echo x > data/spots/new.txt; rm -f data/spots/plain/p000.png; ls data/spots/plain | wc -l"),
            llm_error(LLMError, STOP),
        ]
    )
    check_end(result, "failed", STOP)
    assert sorted(spots.rglob("*")) == before
    refused, ran = of_kind(Path(result.run_dir), "result", "data_engineer")
    assert refused["is_error"]
    assert "Read-only" in ran["text"] or "denied" in ran["text"] or "not permitted" in ran["text"]


def test_two_data_sets_of_one_name(tmp_path: Path) -> None:
    make_spots(tmp_path / "a" / "spots", patients=2)
    make_spots(tmp_path / "b" / "spots", patients=2)
    with pytest.raises(DataError, match="both called"):
        Pipeline(actor(), data=[tmp_path / "a" / "spots", tmp_path / "b" / "spots"])


def test_scripts_cannot_make_m3b_write_elsewhere(build, tmp_path: Path) -> None:
    """m3b itself writes the audit into the working directory: not through a link that a script has put there."""
    victim = tmp_path / "victim.txt"
    victim.write_text("untouched")
    result = build(
        index=[
            combine_calls(write({"m.py": MAKE_INDEX}), script(f"python m.py; ln -s {victim} data_audit.json")),
            say("Indexed."),
        ],
        module=[llm_error(LLMError, STOP)],
    )
    check_end(result, "failed", STOP)
    assert victim.read_text() == "untouched"
    assert not (Path(result.run_dir) / "work" / "data_audit.json").is_symlink()


@pytest.mark.parametrize("forged", ["[]", '{"findings": 3}', "no json", '{"counts": {}, "findings": []}'])
def test_an_audit_that_a_script_wrote_is_nothing_to_m3b(build, forged: str) -> None:
    result = build(index=[write({"data_audit.json": forged}), say("Indexed.")], max_iterations=0)
    check_end(result, "failed", "No index was written", "Indexed.")
    assert of_kind(Path(result.run_dir), "audit") == []
