"""What a training does in each step on a GPU, looked at without one: nothing waits for it, memory that runs out is answered."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from detection_kit import assemble_detection, box_plan, forget, load_project_module
from report_kit import assemble_report, plan_of
from report_kit import forget as forget_report
from template_kit import assemble as assemble_diagnosis
from template_kit import load
from torch.overrides import TorchFunctionMode

from m3b.training.detection.recipe import DetectionRecipe
from m3b.training.recipe import use_recipe

WAITS = {"item", "tolist", "cpu", "numpy", "nonzero", "bincount", "masked_select", "__bool__", "__int__", "__float__"}
WAITS |= {"__index__", "unique"}


class OnDevice(torch.Tensor):
    """A tensor that stands for one on a GPU: what would make the processor wait for it is noted."""

    waiting_calls: list[str] = []  # noqa: RUF012 - torch makes the tensors, nobody else does

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        index = args[1] if name == "__getitem__" and len(args) > 1 else ()
        picked = any(isinstance(part, torch.Tensor) and part.dtype == torch.bool and isinstance(part, OnDevice)
                     for part in (index if isinstance(index, tuple) else (index,)))  # fmt: skip
        if (name in WAITS and args and isinstance(args[0], OnDevice)) or picked:
            cls.waiting_calls.append(name)
        return super().__torch_function__(func, types, args, kwargs or {})


class CopiesToDevice(TorchFunctionMode):
    """Note the calls that copy numbers from the processor to a device, and those that wait for its answer.

    The device is torch's `meta`, on which nothing can be read: `item` and `nonzero` fail there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        is_copy = func in {torch.tensor, torch.as_tensor} and kwargs.get("device") is not None
        is_move = name in {"to", "cuda"} and args[0].device.type == "cpu" and not kwargs.get("non_blocking")
        index = args[1] if name in {"__getitem__", "__setitem__"} else ()
        is_mask = any(
            isinstance(part, torch.Tensor) and part.dtype == torch.bool and part.device.type == "meta"
            for part in (index if isinstance(index, tuple) else (index,))
        )
        result = func(*args, **kwargs)
        if is_copy or is_mask or (is_move and result.device.type == "meta") or name == "linalg_inv":
            self.calls.append(name)
        return result


def on_device(value: torch.Tensor) -> Any:
    return value.as_subclass(OnDevice)


@pytest.fixture(autouse=True)
def waiting_calls() -> Iterator[list[str]]:
    OnDevice.waiting_calls.clear()
    yield OnDevice.waiting_calls
    OnDevice.waiting_calls.clear()


def test_the_stand_in_notes_what_waits(waiting_calls: list[str]) -> None:
    value = on_device(torch.arange(4.0))
    bool(value.sum() > 1)
    value[value > 2]
    value.sum().item()
    assert len(waiting_calls) >= 3


@pytest.fixture
def detection(tmp_path: Path) -> Iterator[Path]:
    forget()
    place = assemble_detection(tmp_path / "work")
    use_recipe(DetectionRecipe())
    yield place
    sys.path.remove(str(place))
    forget()


def boxes_of(dims: int, seed: int = 0) -> torch.Tensor:
    """(2, 6, 2 d + 2): some cut in two, some padding, some alike."""
    rng = np.random.default_rng(seed)
    low = rng.uniform(0, 20, (2, 6, dims))
    high = np.minimum(low + rng.uniform(2, 12, (2, 6, dims)), 32)
    label = rng.integers(-1, 2, (2, 6, 1))
    return torch.tensor(np.concatenate([low, high, label, rng.integers(0, 2, (2, 6, 1))], axis=2), dtype=torch.float32)


def reference_box_loss(loss: Any, output: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
    """The box term, one box after the other, as its definition reads."""
    giou = sys.modules["m3b.training.detection.loss"].generalised_iou  # type: ignore[attr-defined]
    centres, distances = (
        getattr(sys.modules["m3b.training.detection.center_detector"], name)
        for name in ("cell_centres", "decode_distances")
    )
    d, count = len(loss.cell), loss.classes
    middle, terms = centres(output.shape[2:], loss.cell).flatten(1), []
    for image, rows in enumerate(boxes):
        for row in rows:
            if row[2 * d] < 0 or row[2 * d + 1] <= 0:
                continue
            bell = loss._peaks(row[None], output.shape[2:])[0].flatten()
            weight, at = bell.topk(min(9 if d == 2 else 15, len(bell)))
            is_inside = ((middle[:, at] > row[:d, None]) & (middle[:, at] < row[d : 2 * d, None])).all(0)
            is_inside[0] = True
            weight = weight * (weight > 0.2) * is_inside
            raw = output[image, count:].reshape(count, 2 * d, -1)[int(row[2 * d])][:, at]
            reach = distances(raw.view(2 * d, -1, *(1,) * (d - 1)), loss.cell).flatten(1)
            box = torch.cat([middle[:, at] - reach[:d], middle[:, at] + reach[d:]])
            terms.append(((1 - giou(box, row[: 2 * d, None].expand_as(box))) * weight).sum() / weight.sum())
    return torch.stack(terms).mean()


@pytest.mark.parametrize("dims", [2, 3])
def test_the_box_loss_waits_for_nothing_and_is_what_it_was(
    detection: Path, waiting_calls: list[str], dims: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = load_project_module(detection, "m3b.training.detection.loss")
    model = load_project_module(detection, "m3b.training.detection.network").build_model(box_plan(dims))
    output, boxes = torch.randn(2, 2 + 4 * dims, *[8] * dims, requires_grad=True), boxes_of(dims)
    loss = model.loss
    heat_alone = type(loss)(2, loss.cell, box_weight=0.0)(output, boxes)
    full_loss = loss(output, boxes)
    assert float((full_loss - heat_alone).detach()) == pytest.approx(
        float(reference_box_loss(loss, output, boxes).detach()), rel=1e-4
    )
    monkeypatch.setattr(module, "_is_on_cpu", lambda _: False)  # on a GPU padding goes along
    waiting_calls.clear()
    with_padding = loss(on_device(output.detach()), on_device(boxes)).as_subclass(torch.Tensor)
    assert not waiting_calls, f"the GPU is waited for: {waiting_calls}"
    assert float(with_padding) == pytest.approx(float(full_loss.detach()), rel=1e-5)
    grown = torch.autograd.grad(loss(output, boxes), output)[0]
    assert bool(torch.isfinite(grown).all())
    empty = boxes.clone()
    empty[..., 2 * dims] = -1
    assert bool(torch.isfinite(torch.autograd.grad(loss(output, empty), output)[0]).all())


@pytest.mark.parametrize(
    ("dims", "loss", "slope", "weighted", "images", "boxes"),
    [
        (2, 31.154034, 35.045723, 11.094969, 269.78607, 437.55884),
        (3, 172.48108, 186.28735, 54.871368, 3477.8184, 808.54980),
    ],
)
def test_values_of_a_step_are_those_of_one_image_after_the_other(
    detection: Path, dims: int, loss: float, slope: float, weighted: float, images: float, boxes: float
) -> None:
    """Loss, its slope and augmented batches, as the code without batches gave them for the same random numbers."""
    model = load_project_module(detection, "m3b.training.detection.network").build_model(box_plan(dims))
    torch.manual_seed(dims)
    output = torch.randn(2, 2 + 4 * dims, *[8] * dims, requires_grad=True)
    value = type(model.loss)(2, model.loss.cell, class_weights=[1.0, 2.0])(output, boxes_of(dims))
    grad = torch.autograd.grad(value, output)[0]
    place = torch.arange(grad.numel()).view_as(grad) / grad.numel()
    assert [float(number) for number in (value.detach(), grad.abs().sum(), (grad * place).sum())] == pytest.approx(
        [loss, slope, weighted], rel=1e-5
    )
    augment = load_project_module(detection, "m3b.training.detection.augment_boxes").AugmentBoxes(
        {"flip": ["h"], "rotate": 20, "zoom": 0.2, "shift": 0.1}
    )
    torch.manual_seed(dims)
    batch = augment({"pixel_values": torch.randn(2, 1, *[16] * dims), "boxes": boxes_of(dims)})
    assert float(batch["pixel_values"].abs().sum()) == pytest.approx(images, rel=1e-5)
    assert float(batch["boxes"].sum()) == pytest.approx(boxes, rel=1e-5)


@pytest.mark.parametrize("dims", [2, 3])
def test_a_detection_step_copies_nothing_to_the_device(detection: Path, dims: int) -> None:
    """One step on a device: augmentation, network, loss and slope."""
    model = load_project_module(detection, "m3b.training.detection.network").build_model(box_plan(dims)).to("meta")
    changes = {"flip": ["h"], "rotate": 20, "zoom": 0.2, "shift": 0.1, "contrast": 0.2, "gamma": 0.2, "noise": 0.1}
    augment = load_project_module(detection, "m3b.training.detection.augment_boxes").AugmentBoxes(changes)
    batch = {"pixel_values": torch.randn(2, 1, *[32] * dims).to("meta"), "boxes": boxes_of(dims).to("meta")}
    with CopiesToDevice() as copies:
        model(**augment(batch))["loss"].backward()
    assert not copies.calls


@pytest.mark.parametrize("dims", [2, 3])
def test_masks_are_moved_without_copies_to_the_device(dims: int) -> None:
    changes = {"flip": ["h"], "rotate": 10, "tilt": 5, "zoom": 0.1, "shift": 0.1, "elastic": 0.05, "often": 1.0}
    augment = load("augment_masks").AugmentMasks({**changes, "blur": 1.0, "gamma": 0.1})
    patch = [16] * dims
    images, masks, moves = [], [], []
    for seed in range(2):
        _, size, move = load("augment_masks").block_of_patch(
            [0] * dims, patch, augment.draw(patch, np.random.default_rng(seed))
        )
        images.append(torch.randn(1, *size).to("meta"))
        masks.append(torch.zeros(size, dtype=torch.uint8).to("meta"))
        moves.append(move.to("meta"))
    with CopiesToDevice() as copies:
        augment.pair(images, masks, moves, patch)
    assert not copies.calls


@pytest.fixture
def covariates(tmp_path: Path) -> Iterator[Any]:
    forget()
    project = assemble_diagnosis(tmp_path / "work")
    yield load_project_module(project, "m3b.training.diagnosis.covariates")
    sys.path.remove(str(project))
    forget()


def test_covariates_are_blanked_as_before_without_waiting(covariates: Any) -> None:
    rules, table = [{"kind": "number"}, {"kind": "category", "values": ["F", "M"]}], torch.rand(6, 5)
    torch.manual_seed(0)
    blanked = covariates.drop_covariates(table, rules, 0.5)
    torch.manual_seed(0)
    expected = table.clone()
    for start, size in ((0, 2), (2, 3)):
        is_dropped = torch.rand(6) < 0.5
        expected[is_dropped, start : start + size] = 0.0
        expected[is_dropped, start + size - 1] = 1.0
    assert torch.equal(blanked, expected)
    meta_table = table.to("meta")
    with CopiesToDevice() as copies:
        covariates.drop_covariates(meta_table, rules, 0.5)
    assert not copies.calls


def test_targets_are_what_they_were(detection: Path) -> None:
    box_loss = load_project_module(detection, "m3b.training.detection.loss")
    loss, boxes = box_loss.BoxLoss(2, [4, 4]), boxes_of(2, 3)[0]
    boxes = boxes[boxes[:, 4] >= 0]
    bell = loss._peaks(boxes, [8, 8])
    (target,), (ignore,) = loss._targets(boxes, torch.zeros(len(boxes), dtype=torch.long), bell, 1)
    expected, expected_ignore = torch.zeros(2, 8, 8), torch.zeros(2, 8, 8, dtype=torch.bool)
    for row, hill in zip(boxes, bell, strict=True):
        if row[5] > 0:
            expected[int(row[4])] = torch.maximum(expected[int(row[4])], hill)
        else:
            rows, columns = (slice(int(row[axis] / 4), int(-(-row[2 + axis] // 4))) for axis in (0, 1))
            expected_ignore[int(row[4]), rows, columns] = True
    assert torch.equal(target, expected)
    assert torch.equal(ignore, expected_ignore)


def test_masks_are_augmented_and_judged_without_waiting(waiting_calls: list[str]) -> None:
    augment = load("augment_masks").AugmentMasks(
        {"rotate": 10, "zoom": 0.1, "contrast": 0.2, "noise": 0.1, "gamma": 0.1}
    )
    loss, ordered = load("losses").MaskLoss(), load("segmentation.ordered_structures")
    images, masks = torch.randn(3, 1, 16, 16), torch.randint(0, 3, (3, 16, 16), dtype=torch.uint8)
    logits = torch.randn(3, 3, 16, 16, requires_grad=True)
    assert torch.isfinite(loss(logits, masks))
    device_loss = loss(on_device(logits.detach()), on_device(masks))
    assert not waiting_calls, waiting_calls
    assert float(device_loss.as_subclass(torch.Tensor)) == pytest.approx(float(loss(logits, masks).detach()), rel=1e-5)
    torch.manual_seed(1)
    _, size, move = load("augment_masks").block_of_patch(
        (0, 0), (16, 16), np.array([[1.1, 0.1, 0.5], [-0.1, 1.1, 0.0]])
    )
    cuts, truths = torch.randn(1, *size), torch.randint(0, 3, size, dtype=torch.uint8)
    moved = augment.pair(
        [on_device(images[0]), on_device(cuts), on_device(images[1])],
        [on_device(masks[0]), on_device(truths), on_device(masks[1])],
        [None, on_device(move), None],
        (16, 16),
    )
    assert not waiting_calls, waiting_calls
    assert moved[0].shape == images.shape
    axis, pitch = torch.tensor([-1, 0, 0]), torch.tensor([1.0, 2.0, 2.0])
    all_distances = ordered.middle_distances(masks.long(), axis, pitch, [1.0, 1.0])
    assert torch.allclose(all_distances, ordered.middle_distances(masks.long(), axis, pitch, [1.0, 1.0], [0]))


def test_reports_end_with_the_longest_of_the_batch(tmp_path: Path) -> None:
    """The width of the texts is settled where they lie, before they go to the GPU."""
    forget_report()
    place = assemble_report(tmp_path / "work")
    code = (
        "import torch\nfrom m3b.training.report.dataset import StudyDataset\n"
        "s = StudyDataset.__new__(StudyDataset); s.pad = 0\n"
        "items = [{'tokens': torch.tensor([5, 6, 0, 0]), 'targets': torch.tensor([6, 2, -100, -100])},\n"
        "         {'tokens': torch.tensor([5, 6, 7, 0]), 'targets': torch.tensor([6, 7, 2, -100])}]\n"
        "batch = s.collate(items)\n"
        "assert batch['tokens'].tolist() == [[5, 6, 0], [5, 6, 7]] and batch['targets'].shape == (2, 3), batch\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=place, check=True)
    assert plan_of()


@pytest.mark.parametrize("room", [3, 1, 0])
def test_windows_are_summed_where_there_is_room(room: int) -> None:
    """Three windows at once, one at a time, or, on the last try, with the sum beside the processor; then no more."""
    windows, image = load("segmentation.sliding_window"), torch.randn(1, 20, 20)

    def run(part: torch.Tensor) -> torch.Tensor:
        if len(part) > room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return part * 2

    if not room:
        with pytest.raises(torch.OutOfMemoryError):
            windows.predict_windows(image, run, (8, 8), 0.0, torch.device("cpu"), 3)
        return
    doubled = windows.predict_windows(image, run, (8, 8), 0.0, torch.device("cpu"), 3)
    assert torch.allclose(doubled, image * 2, atol=1e-5)


TRAINING = """
import sys, json, torch
from pathlib import Path
from m3b.training import distributed, precision
from m3b.training import entry as start
from m3b.training import loop as training
from m3b.training.step_cost import micro_batch
from template_kit import build_loop

# a step is made in parts, by workers that stay
loop = build_loop(torch.nn.Linear(8, 8), Path("fold0"), workers=2, compile="eager")
assert loop.loader.batch_sampler.batch_size == 4 and loop.accumulation == 2 and loop.epoch_steps == 1
assert loop.loader.persistent_workers

# compiled in place, but not for scoring; what cannot be compiled goes on as it is
assert loop.model._compiled_call_impl and loop.average._compiled_call_impl is None
assert loop.model(torch.ones(2, 8)).shape == (2, 8)
assert not precision.compile_in_place(torch.nn.Linear(4, 4), {"compile": "auto", "device": "cpu"}, 1e6)

# too little memory: more parts of the same step, then a smaller input, then nothing
plan, sizes = {"batch": 9, "least_batch": 2, "size": [64]}, [48, 32]
def shrink(plan):
    if not sizes: return False
    plan["size"] = [sizes.pop(0)]; return True
told = []
while text := training.reduce_memory(plan, shrink): told.append(text)
assert told == ["batch 4, 3 times a step", "batch 2, 5 times a step", "a smaller input, [48]", "a smaller input, [32]"], told
assert plan["batch"] == 9 and micro_batch(plan) == 2

# outside of the steps too, it ends with its exit code and no traceback
def out_of_memory(): raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")
assert start.run_training(out_of_memory) == 4
def other(): raise RuntimeError("something else")
try: start.run_training(other)
except RuntimeError: pass
else: raise AssertionError

# weights that no step uses are looked for once; batch normalisation of few cases a GPU takes those of all
net = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Dropout())
class Whole(torch.nn.Module):
    def __init__(self, more):
        super().__init__()
        self.net, self.more = net, torch.nn.Linear(2, 2) if more else None
    def forward(self, pixel_values): return {"loss": self.net(pixel_values).square().mean()}
state, images = {k: v.clone() for k, v in net.state_dict().items()}, torch.randn(2, 1, 8, 8)
whole, partly = Whole(False), Whole(True)
torch.manual_seed(0); wanted = torch.rand(3); torch.manual_seed(0)
assert not distributed.has_unused_parameters(whole, {"pixel_values": images})
assert distributed.has_unused_parameters(partly, {"pixel_values": images})
assert torch.equal(torch.rand(3), wanted) and all(torch.equal(v, state[k]) for k, v in net.state_dict().items())
assert all(weight.grad is None for weight in net.parameters())
cuda, cpu = torch.device("cuda"), torch.device("cpu")
for device, cases, processes in ((cpu, 4, 2), (cuda, 16, 2), (cuda, 4, 1)):
    assert isinstance(distributed.synchronize_norms(net, device, cases, processes)[1], torch.nn.BatchNorm2d)
together = distributed.synchronize_norms(net, cuda, 4, 2)
assert isinstance(together[1], torch.nn.SyncBatchNorm) and together.state_dict().keys() == state.keys()

# losses are looked at seldom on a GPU, and what is not finite is found
for k in range(training.LOSS_CHECK_STEPS * loop.accumulation - 1):
    loop.losses.append(torch.tensor(float("nan") if k == 3 else 1.0)); loop.check_losses()
loop.losses.append(torch.tensor(1.0))
try: loop.check_losses()
except start.DivergenceError as error: assert "the loss is nan" in str(error)
else: raise AssertionError
print("fine")
"""


def test_the_trainer_on_gpus_is_set_up_as_it_should_be(detection: Path) -> None:
    sys.path.insert(0, str(detection))
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    env["PYTHONPATH"] += os.pathsep + str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", TRAINING], cwd=detection, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "fine" in done.stdout
