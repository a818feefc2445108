"""Make whole runs with a scripted model that errs in named ways, with and without m3b's messages, proposals and loop warning.

The model knows the right actions, but in each run it makes some of `ERRORS` first, drawn by the number of the run. What it does
after an error depends on what it is told alone: if the answer names the error (one of its cues), the model mends it in nine of
ten tries; if not, it repeats itself, and mends it by luck in one of seven. At the index it takes a manifest proposal, if it sees
one, in seven of ten runs, and then makes none of the errors of the index. weak_model.py is about errors of form: JSON, types.

    python benchmarks/weak_errors.py [--runs 40] [--out DIR]

"Without" is the same pipeline with a bare loop: a rejection says "not accepted" and nothing else, an error of a tool says
"Error.", nobody says that the model goes round in circles, and no manifest is proposed. What scripts print is shown in both. The
checks themselves stay, since they decide what is complete: without them more runs would end, with models that nobody has
measured. The shares of mending are assumptions, not measured on any model: the figure says what the messages can do for a
model that reads them.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "pipeline"))

from pipeline_kit import MAKE_INDEX, REQUEST, choice, make_spots, place, play

from m3b import Pipeline
from m3b.agents.loop import Agent
from m3b.bench.statistics import Estimate, bootstrap_difference
from m3b.messages import Message, Reply, ToolCall, ToolSpec
from m3b.run.result import Result
from m3b.testing import ScriptedModel
from m3b.testing.scripted_model import call, combine_calls, say
from m3b.tools.toolbox import Toolbox
from project_kit import script, write

ERROR_SHARE, HEED_SHARE, LUCK_SHARE, PROPOSAL_SHARE = 0.35, 0.9, 1 / 7, 0.7
MAX_ACTIONS = 60
REJECTION, TOOL_ERROR = "not accepted", "Error."


@dataclass(frozen=True)
class ModelError:
    """An error that the model makes first in a stage.

    Args:
        cues: texts in an answer that name the error, regular expressions.
    """

    name: str
    stage: str
    act: Reply
    cues: tuple[str, ...]


def index_by(code: str) -> Reply:
    """Return the act that writes an index by a script."""
    return combine_calls(write({"make_index.py": code}), script("python make_index.py"))


LEAKING_INDEX = MAKE_INDEX.replace('Path("Datapath").mkdir', 'cases["train"] += cases["test"]\nPath("Datapath").mkdir')
FORGOTTEN_CLASS = MAKE_INDEX.replace("enumerate(labels)}", "enumerate(labels[:1])}")
INVENTED_PATHS = MAKE_INDEX.replace("file.as_posix()", '"data/images/" + file.name')

ERRORS = (
    ModelError(
        "wrong JSON", "selection", say('{"data_card": "spots", "task": "diagnosis", "metric": "auroc"'), ("JSON",)
    ),
    ModelError("wrong metric key", "selection", choice("spots", metric="area_under_the_macro_curve"), ("metric",)),
    ModelError("invented data set", "selection", choice("Bright-Spots-2000"), ("data_card", "data set", "card")),
    ModelError("invented paths", "index", index_by(INVENTED_PATHS), (r"data/images", "do(es)? not exist", "missing")),
    ModelError("test cases in training", "index", index_by(LEAKING_INDEX), ("both", "train.*test", "patient")),
    ModelError("forgotten class", "index", index_by(FORGOTTEN_CLASS), ("label_dict", "label", "class")),
    ModelError("stops early", "module", say("The training project is finished."), (r"\.py", r"\.json", "missing")),
    ModelError("loops", "module", call("list_files", path="."), ("circles",)),
    ModelError("forgets a step", "model", script("python train.py"), ("export", "Deliver", "predict")),
    ModelError("loops again", "model", call("list_files", path="data"), ("circles",)),
)


@dataclass
class ErringModel:
    """A model that makes the errors of one run, and then the right actions."""

    errors: list[ModelError]
    random: random.Random
    current: ModelError | None = None
    stage: str = ""
    step: int = 0
    uses_proposal: bool = False
    proposal: str = ""
    made: Counter[str] = field(default_factory=Counter)
    mended: Counter[str] = field(default_factory=Counter)

    def __call__(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply:
        stage = place(messages)[0]
        if stage != self.stage:
            self.stage, self.step, self.current = stage, 0, None
            self._look_at_proposals(messages)
        if self.current is not None:
            return self._answer_feedback(_read_feedback(messages))
        return self._go_on()

    def _look_at_proposals(self, messages: Sequence[Message]) -> None:
        """Decide whether the proposed manifest is taken; the errors of the index are then not made."""
        briefing = next(message.text for message in reversed(messages) if message.text.startswith("Stage: "))
        proposal = re.search(r"Manifest (Datapath/proposals/\S+?\.json):", briefing)
        self.uses_proposal = False
        if self.stage == "index":
            is_taken = self.random.random() < PROPOSAL_SHARE  # drawn in both arms, so that they stay alike
            if proposal and is_taken:
                self.uses_proposal = True
                self.proposal = proposal[1]
                self.errors = [error for error in self.errors if error.stage != "index"]

    def _answer_feedback(self, feedback: str) -> Reply:
        """Mend the present error, or repeat it."""
        assert self.current is not None
        is_named = any(re.search(cue, feedback, re.IGNORECASE | re.DOTALL) for cue in self.current.cues)
        if self.current.act.calls and not feedback.startswith("[rejected]") and self.current.name.startswith("loops"):
            is_named = "circles" in feedback
        elif self.current.act.calls and not feedback.startswith("[rejected]"):
            return say("Done.")  # the script ran; hand over, and see
        if self.random.random() >= (HEED_SHARE if is_named else LUCK_SHARE):
            return self.current.act
        self.mended[self.current.name] += 1
        self.current = None
        return self._go_on()

    def _go_on(self) -> Reply:
        """Make the next error of the stage, or take the next right action."""
        for error in self.errors:
            if error.stage == self.stage:
                self.errors.remove(error)
                self.current = error
                self.made[error.name] += 1
                return error.act
        acts = list(play()[self.stage])
        if self.uses_proposal:
            acts = [call("copy_files", source=self.proposal, destination="Datapath/manifest.json"), say("Indexed.")]
        act: Reply = acts[min(self.step, len(acts) - 1)]
        self.step += 1
        return act


def _read_feedback(messages: Sequence[Message]) -> str:
    """Return what the model was told since its last reply; `[rejected]` first if a check has answered."""
    texts: list[str] = []
    for message in reversed(messages):
        if message.role == "assistant":
            break
        texts.insert(0, message.text)
    text = "\n".join(texts)
    return f"[rejected] {text}" if "The check does not accept this yet" in text else text


def draw_errors(seed: int) -> list[ModelError]:
    """Return the errors of a run; each is made with the same probability."""
    generator = random.Random(seed)
    return [error for error in ERRORS if generator.random() < ERROR_SHARE]


@contextlib.contextmanager
def without_messages() -> Iterator[None]:
    """Leave out what m3b tells a model: reasons of rejections and tool errors, the loop warning, and manifest proposals."""
    call_tool = Toolbox.call

    def answer_curtly(self: Toolbox, tool_call: ToolCall, allowed: Sequence[str]) -> Any:
        result = call_tool(self, tool_call, allowed)
        return result if not result.is_error or "exit_code" in result.data else replace(result, text=TOOL_ERROR)

    with (
        mock.patch("m3b.agents.loop._bullet_list", return_value=f"- {REJECTION}"),
        mock.patch("m3b.agents.briefing.describe_proposals", return_value=[]),
        mock.patch.object(Agent, "_handle_repetition"),
        mock.patch.object(Toolbox, "call", answer_curtly),
    ):
        yield


@dataclass(frozen=True)
class Outcome:
    """One run of the erring model."""

    result: Result
    made: Counter[str]
    mended: Counter[str]
    uses_proposal: bool


def run(seed: int, data: Path, out: Path, *, with_messages: bool = True) -> Outcome:
    """A whole run; the same seed makes the same errors in both arms."""
    model = ErringModel(draw_errors(seed), random.Random(f"{seed} acts"))
    llm = ScriptedModel([model], repeat=True)
    with contextlib.nullcontext() if with_messages else without_messages():
        pipeline = Pipeline(llm, data=[data], out=out, register=False, max_actions=MAX_ACTIONS, reflect=False)
        result = pipeline.run(REQUEST)
    return Outcome(result, model.made, model.mended, model.uses_proposal)


def compare(with_messages: dict[str, list[float]], without: dict[str, list[float]]) -> Estimate:
    """Return the paired difference of completion with its 95 % interval from resampling runs."""
    return bootstrap_difference(with_messages, without)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="weak-errors-", ignore_cleanup_errors=True) as folder:
        out = args.out or Path(folder)
        data = make_spots(out / "spots")
        arms: dict[bool, dict[str, list[float]]] = {True: {}, False: {}}
        made, mended = ({True: Counter[str](), False: Counter[str]()} for _ in range(2))
        for seed in range(args.runs):
            for has_messages in (True, False):
                outcome = run(seed, data, out / f"{seed}-{has_messages}", with_messages=has_messages)
                arms[has_messages][str(seed)] = [float(outcome.result.ok)]
                made[has_messages] += outcome.made
                mended[has_messages] += outcome.mended
                names = ", ".join(outcome.made) or "no error"
                print(
                    f"{seed:3} {'with' if has_messages else 'without':8} {outcome.result.status:14} {names}", flush=True
                )
    counts = {arm: sum(runs[0] for runs in outcomes.values()) for arm, outcomes in arms.items()}
    difference = compare(arms[True], arms[False])
    print(f"\n{'error':24} {'with: mended of made':22} without")
    for error in ERRORS:
        cells = [f"{mended[arm][error.name]} of {made[arm][error.name]}" for arm in (True, False)]
        print(f"{error.name:24} {cells[0]:22} {cells[1]}")
    print(
        f"completed: with {counts[True]:.0f} of {args.runs}, without {counts[False]:.0f} of {args.runs}; "
        f"difference {difference.percent()}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
