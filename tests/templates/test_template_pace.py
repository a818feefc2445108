"""Plans that fit their minutes: what `time_budget` does with any plan, and how each template makes its own cheaper."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from template_kit import call, load

from m3b.resources import copy_template
from m3b.training import time_budget

COST = """
import json, sys
from importlib import import_module
from pathlib import Path
from m3b.training import time_budget
import numpy as np
SPEED = float(sys.argv[1])
plan = import_module(f"m3b.training.{Path.cwd().name}.plan")
def cost(p):
    size = p.get("patch") or p["size"]
    network = p["network"]
    width = network.get("width") or network.get("image_width") or network["filters"][0]
    stem = np.prod(network.get("stem") or [1])
    half = 0.5 if p["precision"] == "bf16" else 1.0
    return float(np.prod(size)) * p["batch"] * (width / 16) ** 2 / stem * half / SPEED
plan.step_seconds = cost
plan.STEP_COSTS.compare_seconds = lambda plans: [cost(p) for p in plans]
plan.has_gpu = lambda: False
time_budget.real_bf16 = lambda: True
first = plan.make_plan
def larger(*rest):
    made = first(*rest)
    return {**made, "size": [128, 128]} if made["task"] == "report" else made
plan.make_plan = larger
plan.main(["--minutes", "2", *sys.argv[2:]])
"""


def make_plan_at_speed(project: Path, speed: float, *settings: str, cost: str = COST) -> tuple[dict[str, Any], str]:
    """The plan on a processor that looks at `speed` voxels a second. The report example is enlarged to be shrunk."""
    words = ["--set", *settings] if settings else []
    done = call(project, "-c", cost, str(speed), *words)
    return json.loads((project / "plan.json").read_text()), done.stdout


@pytest.fixture(
    scope="module",
    params=[
        "diagnosis",
        "detection",
        *(pytest.param(task, marks=pytest.mark.slow) for task in ("segmentation", "report")),
    ],
)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("pace") / request.param
    copy_template(request.param, place)
    call(place, "example/make_example.py")
    return place


def test_a_slow_machine_gets_a_cheaper_plan_and_says_so(project: Path) -> None:
    fast, printed = make_plan_at_speed(project, 1e12)
    assert "reduced" not in printed
    assert fast["precision"] == "bf16", "the quicker one is taken"
    slow, printed = make_plan_at_speed(project, 1e4)
    line = next(line for line in printed.splitlines() if line.startswith("reduced"))
    size = "patch" if "patch" in slow else "size"
    shrunk = sum(a < b for a, b in zip(slow[size], fast[size], strict=True))
    fewer = slow["batch"] < fast["batch"] or slow.get("folds", 1) < fast.get("folds", 1)
    assert shrunk or slow["network"] != fast["network"] or fewer, line
    assert slow["batch"] >= 1
    assert all(side >= 4 for side in slow[size])
    small = slow["dims"] == 2 and max(fast[size]) < 96
    assert not (small and slow["network"].get("stem")), "a small picture keeps its spots"


@pytest.mark.slow
def test_what_was_set_is_kept(project: Path) -> None:
    fast, _ = make_plan_at_speed(project, 1e12)
    size = "patch" if "patch" in fast else "size"
    fixed = [f"{size}={json.dumps(fast[size]).replace(' ', '')}", "precision=fp32"]
    slow, _ = make_plan_at_speed(project, 1e4, *fixed)
    assert slow[size] == fast[size]
    assert slow["precision"] == "fp32"


def test_ways_are_taken_in_order_until_enough_steps_fit() -> None:
    pace = load("time_budget")
    plan = {"minutes": 1.0, "size": 64, "width": 16}

    def narrower(plan: dict[str, Any]) -> str:
        if plan["width"] <= 8:
            return ""
        plan["width"] //= 2
        return f"width {plan['width']}"

    def smaller(plan: dict[str, Any]) -> str:
        plan["size"] //= 2
        return f"size {plan['size']}" if plan["size"] >= 8 else ""

    messages = pace.reduce_plan(plan, [narrower, smaller], lambda p: 10**6 // (p["size"] * p["width"]), 3000)
    assert messages == ["width 8", "size 32"]
    assert "width 8; size 32" in pace.describe_reductions(messages)[0]
    assert pace.describe_reductions([]) == []
    assert pace.reduce_plan(plan, [narrower, smaller], lambda p: 0, 10) == ["size 16", "size 8"], (
        "it ends where nothing helps"
    )


@given(
    st.floats(1e-4, 1e-1), st.floats(1e-9, 1e-5), st.integers(3, 9), st.floats(0.5, 20.0),
)  # fmt: skip
def test_a_reduction_that_gains_too_little_is_undone(
    overhead: float, per_pixel: float, octaves: int, minutes: float
) -> None:
    """Whatever a step costs besides its pixels: each reduction that stays gained enough, and the next one would not have."""
    min_gain, enough = time_budget.MIN_REDUCTION_GAIN, 1000
    plan: dict[str, Any] = {"size": 2**octaves, "network": {"stem": 1}}

    def smaller(plan: dict[str, Any]) -> str:
        plan["size"] //= 2
        plan["network"]["stem"] += 1
        return f"size {plan['size']}" if plan["size"] >= 4 else ""

    def steps(plan: dict[str, Any]) -> int:
        return int(60 * minutes / (overhead + per_pixel * plan["size"] ** 2))

    changes = time_budget.reduce_plan(plan, [smaller], steps, enough, min_gain)
    sizes = [2 ** (octaves - number) for number in range(len(changes) + 1)]
    counts = [steps({"size": size}) for size in sizes]
    assert (plan["size"], plan["network"]["stem"]) == (sizes[-1], len(sizes)), "what was undone leaves no trace"
    assert all(count < enough for count in counts[:-1])
    assert all(later + 1 > min_gain * earlier for earlier, later in itertools.pairwise(counts))
    half = sizes[-1] // 2
    assert counts[-1] >= enough or half < 4 or steps({"size": half}) + 1 <= min_gain * counts[-1]


def test_an_input_whose_size_costs_nothing_keeps_it(project: Path) -> None:
    """Steps that take as long at every size: a smaller input would show less for the same number of steps."""
    if project.name != "diagnosis":
        pytest.skip("other tasks also narrow networks and batches")
    fast, _ = make_plan_at_speed(project, 1e12)
    slow, printed = make_plan_at_speed(project, 0.5, "max_steps=400", cost=COST.replace("/ SPEED", "/ 1e12 + SPEED"))
    assert slow["size"] == fast["size"]
    assert not slow["network"].get("stem")
    epochs = re.findall(r"([0-9.]+) epochs", printed)
    assert epochs == 2 * [f"{slow['expected']['epochs']:.1f}"], "one count: of the augmentation, and of the time"


def test_bfloat16_has_to_be_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was once chosen where it was slower: two cases were timed, and the batch had eight."""
    pace = load("time_budget")
    monkeypatch.setattr(pace, "has_native_bf16", lambda: True)
    for half, expected in ((0.9, "fp32"), (0.5, "bf16"), (float("inf"), "fp32")):
        plan = {"precision": "fp32", "batch": 8}
        batches = []

        def seconds(trial: dict[str, Any], half: float = half, batches: list[int] = batches) -> float:
            batches.append(trial["batch"])
            return half if trial["precision"] == "bf16" else 1.0

        pace.choose_precision(plan, pace.compare_in_turns(seconds))
        assert plan == {"precision": expected, "batch": 8}
        assert set(batches) == {8}
    plan = {"precision": "bf16", "batch": 8, "max_steps": 20}
    pace.choose_precision(plan, lambda plans: [0.1 if p["precision"] == "bf16" else 1.0 for p in plans])
    assert plan["precision"] == "fp32", "exactly so many steps are repeatable, whatever else the machine does"
    monkeypatch.setattr(pace, "has_native_bf16", lambda: False)
    plan = {"precision": "bf16", "batch": 8}
    pace.choose_precision(plan, lambda plans: [0.1 if p["precision"] == "bf16" else 1.0 for p in plans])
    assert plan["precision"] == "fp32", "what the processor only emulates is not taken, however it was timed"
    assert pace.estimate_steps({"minutes": 10}, 0.1, models=2) == pytest.approx(2100, abs=1)


class Watch:
    """A clock that goes on by what each call takes."""

    def __init__(self, call_seconds: list[float]) -> None:
        self.now, self.call_seconds = 0.0, list(call_seconds)

    def monotonic(self) -> float:
        return self.now

    def call(self) -> None:
        self.now += self.call_seconds.pop(0) if len(self.call_seconds) > 1 else self.call_seconds[0]


STEP_PLAN: dict[str, Any] = {"batch": 2, "least_batch": 1, "dims": 2, "device": "cpu", "network": {}, "minutes": 1.0}


class TimedNetwork(torch.nn.Module):
    """A network whose passes take the next of some seconds on a watch; a RuntimeError without any."""

    def __init__(self, watch: Watch, call_seconds: list[float]) -> None:
        super().__init__()
        self.line, self.watch, self.call_seconds = torch.nn.Linear(1, 1), watch, list(call_seconds)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        if not self.call_seconds:
            raise RuntimeError("not supported")
        self.watch.now += self.call_seconds.pop(0) if len(self.call_seconds) > 1 else self.call_seconds[0]
        return {"loss": self.line(x).sum()}


def make_timed_costs(monkeypatch: pytest.MonkeyPatch, step_seconds: dict[str, list[float]]) -> tuple[Any, list[str]]:
    """Costs of steps that take these seconds in each precision, and the precisions whose networks were built."""
    watch, built = Watch([0.0]), list[str]()
    monkeypatch.setattr(load("time_budget"), "time", watch)

    def build(plan: dict[str, Any]) -> torch.nn.Module:
        built.append(plan["precision"])
        return TimedNetwork(watch, step_seconds[plan["precision"]])

    return load("step_cost").StepCosts(lambda plan, cases: {"x": torch.ones(cases, 1)}, build), built


def test_plans_are_compared_in_turns_and_each_network_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy moment falls on both: the first timed steps of each were slow here, whichever came first."""
    costs, built = make_timed_costs(monkeypatch, {"bf16": [9.0, 0.5, 0.2], "fp32": [9.0, 0.6, 0.3]})
    plans = [{**STEP_PLAN, "precision": name} for name in ("bf16", "fp32")]
    assert costs.compare_seconds(plans) == pytest.approx([0.2, 0.3])
    assert built == ["bf16", "fp32"]
    longer_plan = {**plans[0], "minutes": 5.0, "folds": 3, "lr": 0.1}
    assert costs.known_seconds(longer_plan, costs.measure_seconds) == pytest.approx(0.2)
    assert built == ["bf16", "fp32"], "the same step, so nothing was measured again"
    assert costs.known_seconds({**longer_plan, "batch": 4}, costs.measure_seconds) == pytest.approx(0.2)
    assert built == ["bf16", "fp32", "bf16"]


def test_a_precision_that_is_not_supported_takes_for_ever_and_is_not_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    costs, _ = make_timed_costs(monkeypatch, {"bf16": [], "fp32": [0.3]})
    plans = [{**STEP_PLAN, "precision": name} for name in ("bf16", "fp32")]
    assert costs.compare_seconds(plans) == [float("inf"), pytest.approx(0.3)]
    with pytest.raises(RuntimeError, match="supported"):
        costs.known_seconds(plans[0], costs.measure_seconds)


@pytest.mark.parametrize("first", [0.5, 9.0])
def test_the_first_step_is_never_taken_for_the_pace(first: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cold step of nine seconds ended the timing, and was the pace of a training whose steps took one."""
    pace = load("time_budget")
    for timed, expected in ((pace.min_seconds, 0.2), (pace.median_seconds, 0.3)):
        watch = Watch([first, 0.4, 0.2, 0.3])
        monkeypatch.setattr(pace, "time", watch)
        assert timed(watch.call) == pytest.approx(expected)


def test_the_price_of_a_plan_counts_scoring_and_final_figures() -> None:
    pace = load("time_budget")
    assert pace.TrainingCosts(step=0.5).count_steps(100, 10) == 200
    assert pace.TrainingCosts(step=0.5, final=20).count_steps(100, 10) == 160
    often = pace.TrainingCosts(step=0.5, scoring=1.0).count_steps(101, epoch=20)
    assert often == 181, "ten seconds of steps, one of scoring, again and again"
    slow = pace.TrainingCosts(step=0.5, scoring=30.0)
    assert slow.count_steps(1030, epoch=2) == pytest.approx(0.85 * 2000, abs=1), (
        "where scoring is slow, epochs are passed over"
    )
    assert pace.TrainingCosts(step=float("inf")).count_steps(100, 10) == 0
    assert "of 100 s: 160 steps of 0.500 s" in pace.TrainingCosts(0.5, 0.0, 20.0).describe(100, 10)
    assert "of 4 s: 0 steps of 5.700 s" in pace.TrainingCosts(5.7).describe(4, 10)
    description = pace.TrainingCosts(5.7).describe(4, 10, 20)
    assert description.startswith("20 steps (max_steps) of 5.700 s (")
    assert "about 114 s" in description


def test_a_training_of_other_steps_than_planned_says_so() -> None:
    """428 planned steps became 266 beside other programs without a word."""
    pace, plan = load("time_budget"), {"max_epochs": 10}
    pace.record_expected_steps(plan, 428, 100)
    assert pace.describe_planned_steps(plan, 266) == " (428 were planned)"
    assert pace.describe_planned_steps(plan, 428) == pace.describe_planned_steps({}, 266) == ""
    assert "measured just now" in pace.TrainingCosts(0.5).describe(100, 10)
    assert "measured" not in pace.TrainingCosts(0.5, is_measured=False).describe(100, 10)


def test_the_levels_of_a_network_are_listed_once() -> None:
    """Six equal kernels were a third of the line on the network."""
    summary = load("pretrained.plan_start").summarise_network
    network = {"name": "unet", "filters": [8, 8], "strides": [[1, 1], *[[2, 2]] * 5], "kernels": [[3, 3, 1], [3, 3, 3]]}
    assert summary(network) == {**network, "strides": "1 x [1, 1], 5 x [2, 2]"}


def documented_settings(project: Path) -> list[str]:
    """First names of the settings that the README's table speaks of."""
    table = (project / "README.md").read_text().split("## Settings of plan.json")[1].split("##")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return [name.split(".")[0] for cell in cells for name in re.findall(r"`([^`]+)`", cell) if name != "max_steps"]


def test_an_edited_plan_is_priced_and_left_as_it_is(project: Path) -> None:
    """`plan.py` forgot every edit, so that nobody could ask what an edited plan makes of its minutes."""
    make_plan_at_speed(project, 1e12)
    file = project / "plan.json"
    plan = json.loads(file.read_text())
    edited = json.dumps({**plan, "minutes": 600, "note": "by hand", "device": "cpu", "threads": 1})
    file.write_text(edited)

    def price(*options: str) -> str:
        return call(project, "plan.py", "--time-only", *options).stdout

    folds = int(plan.get("folds", 1))
    assert f"of {36000 / folds:.0f} s: " in price()
    assert f"of {60 / folds:.0f} s: " in price("--set", "minutes=1")
    assert file.read_text() == edited
    assert f"lr: {plan['lr']} -> 0.0123" in price("--keep", "--set", "lr=0.0123"), "what was changed is confirmed"
    changed_plan = json.loads(file.read_text())
    assert (changed_plan["lr"], changed_plan["minutes"], changed_plan["note"]) == (0.0123, 600, "by hand"), (
        "changed in place, not made afresh"
    )
    assert set(documented_settings(project)) - set(changed_plan) <= {"tiles", "recipes"}, (
        "the README names settings that the plan has"
    )
    done = call(project, "plan.py", "--time-only", "--set", "minuts=1", check=False)
    assert done.returncode == 1
    assert "did you mean minutes?" in done.stderr


def test_images_of_different_units_are_scaled_by_themselves() -> None:
    scales = load("intensity_scales")
    kinds = [
        scales.name_scale(np.zeros(3, np.int16), "ct", 900.0),
        scales.name_scale(np.zeros(3, np.uint8), "", 255.0),
        scales.name_scale(np.zeros(3, np.float32), "", 1.0),
        scales.name_scale(np.zeros(3, np.int16), "", 255.0),
        scales.name_scale(np.zeros(3, np.int16), "mr", 900.0),
    ]
    assert len(set(kinds)) == 5
    assert scales.name_scale(np.array([-1.2, 3.1], np.float32), "", 3.1) == scales.STANDARD_SCORES, (
        "these were fractions, or 8 bit"
    )
    assert scales.name_scale(np.array([-1.2, 1.1], np.float32), "", 1.1) == scales.STANDARD_SCORES
    assert scales.name_scale(np.array([-0.05, 1.1], np.float32), "", 1.1) == "fractions"
    units = scales.count_scales([{"scale": kind} for kind in [kinds[1], kinds[0], kinds[0]]])
    assert list(units.items()) == [("Hounsfield units", 2), ("8 bit", 1)]
    assert "each image is scaled by itself" in scales.describe_mixed_scales({"scales": units})[0]
    assert scales.describe_mixed_scales({"scales": {"8 bit": 9}}) == []


def _ct(scale: str, shares: tuple[int, int], random: np.random.Generator) -> dict[str, Any]:
    """Lungs and what is dense in them, as measured: in Hounsfield units, or shown in a window of -1250 to 250."""
    units = [random.normal(-850, 40, shares[0]), random.normal(-300, 120, shares[1])]
    if scale == "8 bit":
        units = [np.clip((part + 1250) / 1500 * 255, 0, 255).astype(np.uint8) for part in units]
    return {"scale": scale, "by_class": [np.asarray(part, np.float32) for part in units]}


def test_the_window_of_8_bit_images_is_read_off_what_is_marked() -> None:
    scales, random = load("intensity_scales"), np.random.default_rng(0)
    half = [_ct(scales.HOUNSFIELD, (400, 100), random) for _ in range(5)]
    eight_bit = [
        _ct("8 bit", (200, 400), random) for _ in range(5)
    ]  # sicker people: the shares differ, the densities do not
    window = scales.infer_window([*half, *eight_bit])
    assert window is not None
    assert window == pytest.approx((-1250, 250), abs=25)
    units = scales.count_scales([*half, *eight_bit])
    assert (
        f"{window[0]} to {window[1]} Hounsfield units"
        in scales.describe_mixed_scales({"scales": units, "window": window})[0]
    )

    flat = [{**scan, "by_class": [scan["by_class"][0]]} for scan in (*half, *eight_bit)]
    assert scales.infer_window(flat) is None, "one density tells no window"
    assert scales.infer_window(half) is None
    assert scales.infer_window(eight_bit) is None
    assert scales.infer_window([*half, {**eight_bit[0], "scale": "fractions"}]) is None
    assert scales.infer_window([{**scan, "by_class": []} for scan in (*half, *eight_bit)]) is None, (
        "boxes mark no voxels"
    )


def test_both_halves_come_to_one_scale() -> None:
    scale, rule = load("preprocess").scale_intensity, load("intensity_scales").mixed_ct_rule((-1250, 250))
    units = np.array([[-2000.0, -850.0, -300.0, 40.0, 3000.0]], np.float32)
    eight_bit = np.clip((units + 1250) / 1500 * 255, 0, 255).astype(np.uint8)
    np.testing.assert_allclose(scale(units, rule), scale(eight_bit, rule), atol=0.02)
    hounsfield_rule = {key: value for key, value in rule.items() if key != "eight_bit"}
    assert np.abs(scale(units, hounsfield_rule) - scale(eight_bit, hounsfield_rule)).max() > 1.0


def test_a_plan_is_written_for_people(tmp_path: Path) -> None:
    plan = {"patch": [64, 64], "kernels": [[3, 3], [1, 3]], "classes": ["a [1, 2]", "b"], "none": [], "lr": 0.1}
    file = tmp_path / "plan.json"
    load("plan_settings").save_plan(plan, file)
    assert json.loads(file.read_text()) == plan
    assert '  "patch": [64, 64],\n' in file.read_text()
    assert "    [3, 3],\n    [1, 3]\n" in file.read_text()


def test_a_line_on_the_console_does_not_name_thirty_classes(project: Path) -> None:
    code = (
        "from m3b.training.curves import select_console_figures\n"
        "few = {'valid_loss': 1.0, 'auroc': 0.9, 'x': float('nan')}\n"
        "from m3b.training.curves import format_epoch\n"
        "assert [format_epoch(epoch) for epoch in (1.0, 1.26, 30.0, None)] == ['1', '1.3', '30', '0']\n"
        "assert select_console_figures(few) == {'valid loss': 1.0, 'auroc': 0.9}\n"
        "many = {'valid_loss': 1.0, 'dice': 0.5, **{f'dice_organ {k}': k / 100 for k in range(30)}}\n"
        "assert list(select_console_figures(many)) == ['valid loss', 'dice', *(f'lowest dice organ {k}:' for k in range(3))]\n"
    )
    call(project, "-c", code)


def test_files_without_spacing_do_not_stop_the_plan(tmp_path: Path) -> None:
    copy_template("segmentation", tmp_path / "work")
    code = (
        "import numpy as np\nfrom m3b.training.segmentation.short_training import make_coarser_grid\n"
        "facts = {'dims': 3, 'shapes': np.array([[64, 64, 32]] * 5), 'spacings': np.array([[1.0, 1.0, 4.0]] * 3)}\n"
        "network = {'name': 'unet', 'filters': [8, 16, 32], 'strides': [[1, 1, 1], [2, 2, 1], [2, 2, 2]]}\n"
        "plan = {'dims': 3, 'spacing': [1.0, 1.0, 4.0], 'patch': [64, 64, 32], 'network': network}\n"
        "plan |= {'side': None, 'pixels': False, 'chains': False}\n"
        "assert 'spacing' in make_coarser_grid(facts)(plan)\n"
        "assert plan['spacing'][2] == 4.0 and plan['spacing'][0] > 1.2, plan\n"
        "assert all(side <= 64 for side in plan['patch']), plan\n"
    )
    call(tmp_path / "work", "-c", code)


def test_a_training_that_its_epochs_end_before_its_time_is_told() -> None:
    describe = load("time_budget").describe_epochs
    assert describe({"max_epochs": load("time_budget").NO_LIMIT}, 130, 13) == "10.0 epochs of 13 steps"
    assert describe({"max_epochs": 10}, 130, 13) == "10.0 epochs of 13 steps"
    assert describe({"max_epochs": 1000}, 130, 13) == "only 10.0 of max_epochs=1000 epochs of 13 steps fit"
    assert (
        describe({"max_epochs": 1000}, 492_931, 13)
        == "max_epochs ends it after 1000 epoch(s) of 13 steps, 3 % of these"
    )
    assert (
        describe({"max_epochs": 1}, 492_931, 13)
        == "max_epochs ends it after 1 epoch(s) of 13 steps, less than 1 % of these"
    )
