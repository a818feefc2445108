"""Record the committed run anew, with the replies that are in it, after a change of what m3b tells a model.

    python tests/recordings/rerecord.py            # writes tests/recordings/chest.jsonl; look at the diff before a commit
    python tests/recordings/rerecord.py --check    # only replays it, as the test does

The replies of the recording were given to a real run, over HTTP, by somebody who read what m3b said and nothing else.
They are kept; only the requests are written again. Where a reply no longer makes sense after a change, the run must be
made again by hand: `m3b run "..." --data chest --train-minutes 0.5 --no-reflect --llm record:FILE:SPEC`, on `m3b
data make chest`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from m3b import Pipeline
from m3b.data.synthetic import make_chest
from m3b.llm.recording import RecordingLLM, ReplayLLM
from m3b.run.result import Result

FILE = Path(__file__).with_name("chest.jsonl")
REQUEST = "Build a model that detects lung opacities on chest X-rays"
MINUTES = 0.5
SCORED_STATUSES = ("completed", "below_range")


def build(llm: Any, data: Path, folder: Path) -> Result:
    """The run without reflection: whether a weak model is to be thought over would depend on how busy the machine is."""
    return Pipeline(llm, data=[data], out=folder / "run", train_minutes=MINUTES, reflect=False).run(REQUEST)


def replay(folder: Path, file: Path = FILE) -> Result:
    """The recorded run, made again in a folder."""
    data = make_chest(folder / "chest")
    return build(f"replay:{file}", data, folder)


def refresh(folder: Path) -> Result:
    """The recorded run with its replies, whatever they now answer, into a new recording.

    How good the model is depends on how busy the machine is, and is no part of the conversation: a measured one will do.
    """
    old = ReplayLLM(FILE, strict=False)
    old.name = old.model
    data = make_chest(folder / "chest")
    new = folder / FILE.name
    result = build(RecordingLLM(old, new), data, folder)
    if result.status in SCORED_STATUSES and not old.remaining:
        FILE.write_bytes(new.read_bytes())
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        result = replay(Path(folder)) if check else refresh(Path(folder))
    print(f"{result.status}: {result.reason}")
    return 0 if result.status in SCORED_STATUSES else 1


if __name__ == "__main__":
    sys.exit(main())
