"""A watch on this process: which files below given folders it opens elsewhere than in `m3b.untrusted`.

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
ALLOWED = os.sep + os.path.join("m3b", "untrusted") + os.sep


class OpenWatch:
    """Notes each open of a file below the watched folders, with the module that called it.

    `foreign` holds opens whose caller is not `m3b.untrusted`: (path counted from its folder, callers). `trusted` counts
    the others that name a watched path, which shows that the watch is awake.
    """

    def __init__(self) -> None:
        self.folders: list[str] = []
        self.foreign: dict[str, str] = {}
        self.trusted = 0
        sys.addaudithook(self._hear)

    def below(self, *folders: Path) -> None:
        """Watch these folders from now on."""
        self.folders += [os.path.realpath(folder) for folder in folders]

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if event != "open" or not self.folders or not isinstance(arguments[0], str | bytes | os.PathLike):
            return
        flags = arguments[2]
        if isinstance(flags, int) and flags & (os.O_DIRECTORY | os.O_PATH) and not flags & os.O_CREAT:
            return  # opening a folder reads no file
        named = os.path.abspath(os.fsdecode(arguments[0]))
        places = {
            os.path.join(os.path.realpath(os.path.dirname(named)), os.path.basename(named)),
            os.path.realpath(named),
        }
        watched = [(place, top) for place in places for top in self.folders if place.startswith(top + os.sep)]
        if not watched or os.path.isdir(named):
            return
        if is_untrusted(sys._getframe(1)):
            self.trusted += 1
        else:
            place, top = watched[0]
            self.foreign.setdefault(os.path.relpath(place, os.path.dirname(top)), callers(sys._getframe(1)))


def is_untrusted(frame: FrameType | None) -> bool:
    """Whether the innermost caller outside Python's own library is `m3b.untrusted`."""
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

    shown = CliRunner().invoke(app, [str(word) for word in words])
    return {"command": " ".join(map(str, words[:2])), "code": shown.exit_code, "said": shown.output[-1500:]}


def played_run(watch: OpenWatch, top: Path) -> Iterable[dict[str, object]]:
    """A whole run with a scripted model, an external set and a stage that the user wrote; then what people do with it."""
    from pipeline_kit import REQUEST, actor, make_spots, play

    from m3b import Pipeline, load_model

    data, out, other = make_spots(top / "spots"), top / "run", make_spots(top / "north", patients=40, seed=5)
    for folder in (data, other):
        (folder / "README.md").write_text("Bright spots, drawn.")
        (folder / "labels.json").write_text('{"plain": 0, "spot": 1}')
    watch.below(data, other, out / "work", out / "model", out / "view", out / "locked")
    result = Pipeline(actor(play()), data=[data], out=out, external={"north": other}).run(REQUEST)
    yield {"command": "run", "code": int(result.status != "completed"), "said": result.reason}
    image = next((data / "spot").iterdir())
    yield {"command": "load_model", "code": 0, "said": repr(load_model(out / "model"))}
    yield command("predict", out, image, "-o", top / "answers")
    yield command("predict", out / "model", image, "-o", top / "answers.csv")
    yield command("score", out, out / "locked/Datapath/test.json")
    yield command("report", out)
    yield command("verify", out)
    yield command("show", out)
    yield command("look", data, REQUEST)
    yield command("data", "card", data, "-o", top / "card.json")
    yield command("data", "audit", out)
    yield command("resume", out)


SCENARIOS = {"played": played_run}


def main(scenario: str, top: Path) -> None:
    sys.path[:0] = [str(TESTS), str(TESTS / "pipeline"), str(TESTS / "models")]
    watch = OpenWatch()
    steps = []
    for step in SCENARIOS[scenario](watch, top):
        steps.append(step)
    probe = Path(watch.folders[0]) / "probe.txt"
    foreign = dict(watch.foreign)
    probe.write_text("x")
    noticed = len(watch.foreign) == len(foreign) + 1
    print(json.dumps({"steps": steps, "foreign": foreign, "trusted": watch.trusted, "noticed": noticed}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
