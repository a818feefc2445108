"""A watch on this process: which files below given folders it opens elsewhere than in `m3b.isolation.untrusted`.

`python open_watch.py SCENARIO FOLDER` runs one scenario below an empty folder and prints what was seen, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

TESTS = Path(__file__).resolve().parents[1]
STDLIB = os.path.realpath(sysconfig.get_paths()["stdlib"]) + os.sep
THIRD_PARTY = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
ALLOWED = os.sep + os.path.join("m3b", "isolation", "untrusted") + os.sep


class OpenWatch:
    """Notes each open of a file below the watched folders, with the module that called it.

    `foreign` holds them: path -> callers. `m3b.isolation.untrusted` itself opens relative to descriptors.
    """

    def __init__(self) -> None:
        self.folders: list[str] = []
        self.read_only: list[str] = []
        self.foreign: dict[str, str] = {}
        sys.addaudithook(self._hear)

    def below(self, *folders: Path) -> None:
        """Watch every open below these folders from now on."""
        self.folders += [os.path.realpath(folder) for folder in folders]

    def reads_below(self, *folders: Path) -> None:
        """Watch opens for reading below these folders, into which m3b itself writes."""
        self.below(*folders)
        self.read_only += [os.path.realpath(folder) for folder in folders]

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if event != "open" or not self.folders or not isinstance(arguments[0], str | bytes | os.PathLike):
            return
        flags = arguments[2]
        if isinstance(flags, int) and flags & (os.O_DIRECTORY | os.O_PATH) and not flags & os.O_CREAT:
            return  # opening a folder reads no file
        path = os.path.abspath(os.fsdecode(arguments[0]))
        places = {
            os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)),
            os.path.realpath(path),
        }
        writing = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)
        tops = [top for top in self.folders if not (writing and top in self.read_only)]
        watched = [(place, top) for place in places for top in tops if place.startswith(top + os.sep)]
        if watched and not os.path.isdir(path) and not is_untrusted(sys._getframe(1)):
            place, top = watched[0]
            self.foreign.setdefault(os.path.relpath(place, os.path.dirname(top)), callers(sys._getframe(1)))


def is_untrusted(frame: FrameType | None) -> bool:
    """Whether the innermost caller outside Python's own library is `m3b.isolation.untrusted`."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not is_stdlib(file):
            return ALLOWED in file
        frame = frame.f_back
    return False


def is_stdlib(file: str) -> bool:
    if file.startswith("<frozen"):
        return True
    return os.path.realpath(file).startswith(STDLIB) and not any(part in file for part in THIRD_PARTY)


def callers(frame: FrameType | None) -> str:
    """The innermost callers outside Python's own library, for the message of a failed test."""
    names: list[str] = []
    while frame is not None and len(names) < 5:
        file = frame.f_code.co_filename
        if not is_stdlib(file):
            names.append(f"{'/'.join(Path(file).parts[-2:])}:{frame.f_code.co_name}:{frame.f_lineno}")
        frame = frame.f_back
    return " <- ".join(names)


def command(*words: object) -> dict[str, object]:
    """Run one m3b command in this process."""
    from typer.testing import CliRunner

    from m3b.cli.app import app

    result = CliRunner().invoke(app, [str(word) for word in words])
    return {"command": " ".join(map(str, words[:2])), "code": result.exit_code, "said": result.output[-1500:]}


def played_run(watch: OpenWatch, top: Path) -> Iterable[dict[str, object]]:
    """A whole run with a scripted model, an external set and a stage of the user's; then what people do with it."""
    from pipeline_kit import REQUEST, actor, make_spots, play

    from m3b import Pipeline, load_model

    data, out, external = make_spots(top / "spots"), top / "run", make_spots(top / "north", patients=40, seed=5)
    for folder in (data, external):
        (folder / "README.md").write_text("Bright spots, drawn.")
        (folder / "labels.json").write_text('{"plain": 0, "spot": 1}')
    watch.below(data, external, out / "work", out / "view")
    watch.reads_below(out / "model")
    result = Pipeline(actor(play()), data=[data], out=out, external={"north": external}).run(REQUEST)
    yield {"command": "run", "code": int(result.status != "completed"), "said": result.reason}
    image = next((data / "spot").iterdir())
    yield {"command": "load_model", "code": 0, "said": repr(load_model(out / "model"))}
    yield command("predict", out, image, "-o", top / "answers", "--overlay")
    yield command("predict", out / "model", image, "-o", top / "answers.csv")
    yield command("score", out, out / "locked/Datapath/test.json")
    yield command("report", out)
    yield command("verify", out)
    yield command("verify", out / "model")
    yield command("show", out)
    yield command("data", "audit", out)
    yield command("data", "audit", out / "work")
    yield command("data", "survey", data)
    yield command("data", "card", data, "-o", top / "card.json")
    yield command("resume", out)


def run_by_rules(watch: OpenWatch, top: Path) -> Iterable[dict[str, object]]:
    """A whole run by the rules, of a table and its images, with a template that is really trained; then its export."""
    from pipeline_kit import make_table

    rows = [[f"i{n:03d}.png", f"PT{n:03d}", ("plain", "spot")[n % 2]] for n in range(60)]
    data, out = make_table(top / "scans", rows), top / "run"
    (data / "README.md").write_text("Scans with and without a bright spot; cases.csv has the findings.")
    watch.below(data, out / "work", out / "view")
    watch.reads_below(out / "model")
    request = "Tell scans with a spot from plain ones"
    yield command(
        "run", request, "--data", data, "--llm", "rules", "--train-minutes", "0.2", "--out", out, "--no-confirm"
    )
    yield command("export", out, "--to", "monai-bundle", "-o", top / "bundle", "--verify", data / "images/i001.png")
    yield command("export", out, "--to", "onnx", "-o", top / "graphs")
    yield command("predict", out, data / "images", "-o", top / "answers.json")
    yield command("plan", out / "work")
    yield command("report", out)


def look_at_layouts(watch: OpenWatch, top: Path) -> Iterable[dict[str, object]]:
    """Looks at folders of several layouts: a table, masks, a DICOM tree, arrays; with a reading that is given."""
    import numpy as np
    import pydicom
    from PIL import Image
    from pipeline_kit import make_table
    from pydicom.data import get_testdata_file

    table = make_table(top / "table", [[f"i{n}.png", f"PT{n}", ("plain", "spot")[n % 2]] for n in range(24)])
    (table / "dataset_description.json").write_text('{"Name": "drawn"}')
    masks, dicom, arrays = top / "masks", top / "dicom", top / "arrays"
    random = np.random.default_rng(1)
    for folder in (masks / "images", masks / "masks", dicom, arrays):
        folder.mkdir(parents=True)
    for number in range(12):
        picture = random.integers(0, 255, (32, 32), dtype=np.uint8)
        Image.fromarray(picture).save(masks / f"images/c{number}.png")
        Image.fromarray((picture > 200).astype(np.uint8)).save(masks / f"masks/c{number}.png")
        scan = pydicom.dcmread(str(get_testdata_file("CT_small.dcm")))
        scan.PatientID, scan.SeriesInstanceUID, scan.SOPInstanceUID = f"P{number}", f"1.2.3.{number}", f"1.2.4.{number}"
        scan.PixelData = random.integers(0, 1000, scan.Rows * scan.Columns, dtype=np.int16).tobytes()
        (dicom / ("plain", "spot")[number % 2]).mkdir(exist_ok=True)
        scan.save_as(dicom / ("plain", "spot")[number % 2] / f"{number}.dcm")
    np.savez(arrays / "all.npz", images=random.integers(0, 255, (24, 8, 8), dtype=np.uint8), labels=np.arange(24) % 2)
    (arrays / "README.md").write_text("0 = plain, 1 = spot")
    (table / "card.json").write_text('{"name": "t", "description": "Drawn.", "path": "."}')
    yield command("look", table, "Tell spot from plain", "-o", table / "own.json")
    watch.below(table, masks, dicom, arrays)
    yield command("look", table, "Tell spot from plain", "--page", top / "page.html", "-o", top / "manifest.json")
    yield command("look", table, "Tell spot from plain", "--manifest", table / "own.json")
    yield command("look", masks, "Segment the bright tissue")
    yield command("look", dicom, "Tell spot from plain")
    yield command("look", arrays, "Tell spot from plain")
    for folder in (table, dicom):
        yield command("data", "card", folder, "-o", top / f"{folder.name}.json")
    from m3b.data.cards import gather

    yield {"command": "gather", "code": 0, "said": str(gather([table / "card.json", dicom]))}


LINKS = (
    "mv Logout Elsewhere; mkdir Logout; cp Elsewhere/* Logout; ln -s /etc/passwd Logout/log.csv; "
    "ln -sf /proc/self/environ data_audit.json; ln -sf /etc/passwd NOTES.md"
)


def run_with_own_stages(watch: OpenWatch, top: Path) -> Iterable[dict[str, object]]:
    """A run with a stage and a check of the user's own; a script of the agent fills the work folder with links."""
    from dataclasses import dataclass

    from pipeline_kit import REQUEST, TRAIN, actor, make_spots, play, say, script

    from m3b import Pipeline, Role, Stage
    from m3b.agents.check_result import CheckResult, accept

    @dataclass(frozen=True)
    class Note:
        text: str

    class Notes(Stage[Note]):
        role = Role("note_taker", "Note Taker")
        artifact = Note

        def check(self, state: object, services: object, closing_text: str) -> CheckResult:
            return accept(Note(closing_text))

    data, out = make_spots(top / "spots", patients=40), top / "run"
    watch.below(data, out / "work", out / "view")
    stages = ["task_manager", "data_engineer", Notes(), "module_architect", "model_trainer"]
    acts = play(
        note_taker=[say("Nothing to note.")], model=[script(f"{TRAIN} && {LINKS}"), say("Trained and exported.")]
    )
    checks = {"data_engineer": lambda index, work: []}
    result = Pipeline(actor(acts), data=[data], out=out, stages=stages, checks=checks).run(REQUEST)
    yield {"command": "run", "code": int(not result.model_dir), "said": f"{result.status}: {result.reason}"}
    yield command("report", out)
    yield command("show", out)
    yield command("verify", out)


SCENARIOS = {
    "played": played_run,
    "rules": run_by_rules,
    "layouts": look_at_layouts,
    "stages": run_with_own_stages,
}


def main(scenario: str, top: Path) -> None:
    """Run a scenario; print its steps, the opens that were seen, and whether the watch notices an open of its own."""
    sys.path[:0] = [str(TESTS), str(TESTS / "pipeline"), str(TESTS / "models")]
    watch = OpenWatch()
    steps = list(SCENARIOS[scenario](watch, top))
    foreign = dict(watch.foreign)
    (Path(watch.folders[0]) / "probe.txt").write_text("x")
    noticed = len(watch.foreign) == len(foreign) + 1
    print(json.dumps({"steps": steps, "foreign": foreign, "noticed": noticed}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
