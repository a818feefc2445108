"""Settings that plans start from: a table for each task, by dimensions, cases, device and minutes, each row with its evidence.

For each setting, the first row counts whose conditions hold, so special rows stand above general ones. `docs/refresh.py` writes the
tables into docs/templates.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from m3b.training.time_budget import NO_LIMIT

MIN_NNUNET_MINUTES = 60
"""Minutes from which nnU-Net is chosen on a GPU."""
_RANGE = re.compile(r"(?:from ([\d.]+))?(?: ?below ([\d.]+))? (cases|minutes|GiB)")


@dataclass(frozen=True)
class PlanConditions:
    """What a plan is made for.

    Args:
        device: "GPU" or "processor".
        gib: memory of the GPU.
        target: what a detector is trained on: "boxes" or "masks".
    """

    dims: int = 0
    device: str = ""
    cases: float = 0
    minutes: float = 0
    gib: float = 0
    target: str = ""

    def meet(self, condition: str) -> bool:
        """Return whether a condition of the table holds: a word, or "from 500 cases", "from 60 below 90 minutes", "below 8 GiB".

        Raises:
            ValueError: there is no such condition.
        """
        if condition in ("2D", "3D"):
            return self.dims == int(condition[0])
        if condition in ("GPU", "processor", "boxes", "masks"):
            return condition in (self.device, self.target)
        if not (match := _RANGE.fullmatch(condition)):
            raise ValueError(f"{condition!r} is no condition of a table of settings")
        value = {"cases": self.cases, "minutes": self.minutes, "GiB": self.gib}[match[3]]
        return float(match[1] or 0) <= value < float(match[2] or inf)


def conditions_of(facts: Mapping[str, Any], gpu: bool, minutes: float = 0, gib: float = 0) -> PlanConditions:
    """Return the conditions for the cases of a fingerprint."""
    device, target = "GPU" if gpu else "processor", str(facts.get("target", ""))
    return PlanConditions(int(facts["dims"]), device, int(facts["cases"]), minutes, gib, target)


@dataclass(frozen=True)
class PlanRow:
    """Settings, and under which conditions plans start from them.

    Args:
        conditions: separated by commas; all must hold.
        settings: of plan.json, or limits by which a plan is made.
        evidence: a row of benchmarks/RESULTS.md, a paper, or a default of the field with its source; or that nothing was compared.
    """

    conditions: str
    settings: Mapping[str, Any]
    evidence: str


def choose_rows(task: str, plan: PlanConditions) -> list[tuple[PlanRow, dict[str, Any]]]:
    """Return the rows of a task's table that hold, each with the settings that no row above it has."""
    chosen: dict[str, Any] = {}
    rows = []
    for row in PLAN_TABLES[task]:
        settings = {key: value for key, value in row.settings.items() if key not in chosen}
        if settings and all(plan.meet(condition) for condition in filter(None, row.conditions.split(", "))):
            chosen |= settings
            rows.append((row, settings))
    return rows


def choose_settings(task: str, plan: PlanConditions = PlanConditions()) -> dict[str, Any]:
    """Return the settings of a task; without conditions, those that hold for all its plans."""
    return {key: value for _, settings in choose_rows(task, plan) for key, value in settings.items()}


def describe_rows(task: str, plan: PlanConditions) -> str:
    """Return a line on the rows that were chosen by their conditions; docs/templates.md has their settings and evidence."""
    rows = [row.conditions for row, _ in choose_rows(task, plan) if row.conditions]
    return f"settings start from the rows of m3b's table whose conditions hold here: {'; '.join(rows)}"


# fmt: off
_NNUNET = "nnU-Net (Isensee et al., Nature Methods 2021)"
_PRESETS = "half of the hours that nnU-Net's documentation of its presets states for an A100"
DIAGNOSIS = (
    PlanRow("GPU, below 500 cases", {"network": {"name": "resnet18"}, "lr": 3e-4},
            "ResNet-18 (He et al., CVPR 2016); rate not compared"),
    PlanRow("GPU, from 500 cases", {"network": {"name": "densenet121"}},
            "DenseNet-121 (Huang et al., CVPR 2017), as in CheXNet (Rajpurkar et al. 2017)"),
    PlanRow("GPU", {"precision": "bf16", "max_pretrained_mb": 600}, "mixed precision (Micikevicius et al., ICLR 2018)"),
    PlanRow("processor", {"network": {"name": "small_cnn", "width": 16}, "precision": "fp32", "max_pretrained_mb": 150},
            "RESULTS.md#templates-against-other-ways-to-train"),
    PlanRow("below 500 cases", {"dropout": 0.4, "weight_decay": 0.1, "max_batch": 16, "cross_validation": True},
            "RESULTS.md#pneumoniamnist-whole-run for folds; regularisation not compared"),
    PlanRow("from 500 cases", {"dropout": 0.2, "weight_decay": 0.02, "max_batch": 64, "cross_validation": False}, "not compared"),
    PlanRow("below 1.5 minutes", {"max_networks": 1}, "not compared: a network needs half a minute at least"),
    PlanRow("2D, GPU", {"max_side": 320, "step_pixels": 2**20}, "side as in CheXpert (Irvin et al., AAAI 2019)"),
    PlanRow("2D, processor, from 500 below 3001 cases", {"max_side": 224}, "side as in ImageNet (Krizhevsky et al., NeurIPS 2012)"),
    PlanRow("2D, processor", {"max_side": 128, "step_pixels": 2**19}, "not compared: more epochs for fewer pixels"),
    PlanRow("3D, GPU", {"max_side": 128, "step_pixels": 2**21}, "not compared"),
    PlanRow("3D, processor", {"max_side": 64, "step_pixels": 2**20}, "side as in MedMNIST+ (Yang et al., Scientific Data 2023)"),
    PlanRow("2D", {"largest_side": 512, "largest_batch": 128}, "not compared: if a GPU has memory left"),
    PlanRow("3D", {"largest_side": 192, "largest_batch": 128}, "not compared: if a GPU has memory left"),
    PlanRow("", {"lr": 1e-3, "label_smoothing": 0.05, "ema": 0.99, "validation_share": 0.15, "max_networks": 5,
                 "augment": {"rotate": 10, "zoom": 0.1, "shift": 0.05, "erase": 0.25}},
            "AdamW (Loshchilov and Hutter, ICLR 2019), label smoothing (Szegedy et al., CVPR 2016); values not compared"),
    PlanRow("", {"self_training": False}, "not compared: `benchmarks/self_training.py` compares it"),
    PlanRow("", {"min_steps": 250, "min_epochs": 40}, "not compared: before another fold, a finer input or a wider network"),
)
SEGMENTATION = (
    PlanRow("GPU, from 38 GiB, from 1980 minutes", {"planner": "XL"}, _PRESETS),
    PlanRow("GPU, from 22 GiB, from 1050 minutes", {"planner": "L"}, _PRESETS),
    PlanRow("GPU, from 7 GiB, from 360 minutes", {"planner": "M"}, _PRESETS),
    PlanRow(f"GPU, from {MIN_NNUNET_MINUTES} minutes", {"engine": "nnunet"}, f"{_NNUNET}, if it is installed"),
    PlanRow("2D, GPU", {"image_voxels": 1024**2, "patch_voxels": 512**2, "step_voxels": 2**21}, f"patches of {_NNUNET}"),
    PlanRow("3D, GPU", {"image_voxels": 40_000_000, "patch_voxels": 128**3, "step_voxels": 2**22}, f"patches of {_NNUNET}"),
    PlanRow("2D, processor", {"image_voxels": 512**2, "patch_voxels": 256**2, "step_voxels": 2**16}, "RESULTS.md#optimisers: polyps"),
    PlanRow("3D, processor", {"image_voxels": 2_000_000, "patch_voxels": 160_000, "step_voxels": 2**17}, "RESULTS.md#hippocampus"),
    PlanRow("GPU", {"first_filters": 32, "precision": "bf16"}, f"filters of {_NNUNET}"),
    PlanRow("processor", {"first_filters": 16, "precision": "fp32"}, "not compared: half of the filters of nnU-Net"),
    PlanRow("2D", {"largest_patch_voxels": 1024**2, "largest_batch": 32}, "not compared: if a GPU has memory left"),
    PlanRow("3D", {"largest_patch_voxels": 192**3, "largest_batch": 8}, "not compared: if a GPU has memory left"),
    PlanRow("", {"optimizer": "muon", "lr": 2e-3, "weight_decay": 0.01}, "RESULTS.md#optimisers: U-Net, 8 first filters"),
    PlanRow("", {"min_steps": 600, "min_steps_per_fold": 1500},
            "RESULTS.md#template-settings: `min_steps_per_fold`"),
    PlanRow("", {"planner": "plain", "engine": "trainer", "largest_first_filters": 48, "clip": 5.0, "ema": 0.995,
                 "max_epochs": NO_LIMIT, "patience": 2000, "keep": "last", "mirror": "auto", "shifted": "auto",
                 "validation_share": 0.15}, "RESULTS.md#hippocampus: Muon, elastic deformation"),
)
DETECTION = (
    PlanRow("2D, GPU", {"longest_side": 1024, "finest_side": 1536, "patch_voxels": 2**20, "step_voxels": 2**22},
            "sides as in torchvision's detectors (800 to 1,333)"),
    PlanRow("3D, GPU", {"image_voxels": 2**25, "patch_voxels": 2**21, "step_voxels": 2**23},
            "patches as in nnDetection (Baumgartner et al., MICCAI 2021)"),
    PlanRow("2D, processor, boxes", {"patch_voxels": 2**18, "step_voxels": 2**19}, "RESULTS.md#detectors: `own`"),
    PlanRow("2D, processor", {"longest_side": 256, "finest_side": 512, "patch_voxels": 2**16, "step_voxels": 2**18},
            "RESULTS.md#detectors: `own`, for the sides; patches of masks not compared"),
    PlanRow("3D, processor", {"image_voxels": 2**22, "patch_voxels": 3 * 2**15, "step_voxels": 2**18}, "not compared"),
    PlanRow("GPU", {"first_filters": 32, "max_filters": 320, "precision": "bf16"}, f"filters of {_NNUNET}"),
    PlanRow("processor", {"first_filters": 16, "max_filters": 128, "precision": "fp32"}, "RESULTS.md#detectors: `own`"),
    PlanRow("2D, boxes", {"foreground": 0.33}, f"share of {_NNUNET}"),
    PlanRow("boxes", {"lr": 1e-3, "shift": 0.05}, "RESULTS.md#detectors: `own`"),
    PlanRow("below 500 cases", {"validation_share": 0.2}, "not compared"),
    PlanRow("2D", {"rotate": 10, "largest_batch": 32, "largest_patch_voxels": 2**21}, "not compared: if a GPU has memory left"),
    PlanRow("3D", {"rotate": 8, "largest_batch": 8, "largest_patch_voxels": 2**23}, "not compared: if a GPU has memory left"),
    PlanRow("", {"lr": 2e-3, "shift": 0.0, "foreground": 0.5, "validation_share": 0.15, "weight_decay": 0.02, "ema": 0.99,
                 "patience": 400, "min_steps": 400, "min_steps_per_fold": 3000},
            "half of the patches on lesions, as in nnDetection (Baumgartner et al., MICCAI 2021); other values not compared"),
)
REPORT = (
    PlanRow("2D, GPU", {"max_side": 256, "step_pixels": 2**21}, "not compared"),
    PlanRow("2D, processor", {"max_side": 128, "step_pixels": 2**19}, "RESULTS.md#reports-on-real-images"),
    PlanRow("3D, GPU", {"max_side": 128, "step_pixels": 2**23}, "not compared"),
    PlanRow("3D, processor", {"max_side": 64, "step_pixels": 2**21}, "not compared"),
    PlanRow("GPU", {"image_width": 32, "width": 256, "layers": 4, "precision": "bf16"},
            "not compared: narrower than R2Gen (Chen et al., EMNLP 2020)"),
    PlanRow("processor", {"image_width": 16, "width": 128, "layers": 2, "precision": "fp32"}, "RESULTS.md#reports-on-real-images"),
    PlanRow("below 500 cases", {"dropout": 0.2, "hide_image": 0.5, "image_gradient": 0.1, "max_batch": 8}, "not compared"),
    PlanRow("from 500 cases", {"dropout": 0.1, "hide_image": 0.25, "image_gradient": 0.3, "max_batch": 32},
            "RESULTS.md#reports-on-real-images: PneumoniaMNIST"),
    PlanRow("2D", {"largest_side": 448}, "not compared: if a GPU has memory left"),
    PlanRow("3D", {"largest_side": 160}, "not compared: if a GPU has memory left"),
    PlanRow("", {"lr": 2e-3, "weight_decay": 0.05, "label_smoothing": 0.05, "ema": 0.99, "validation_share": 0.15, "min_steps": 600,
                 "augment": {"rotate": 6, "zoom": 0.06, "shift": 0.04, "erase": 0.0}, "largest_batch": 64, "largest_image_width": 48},
            "not compared: neither flips, since reports name sides, nor erasing, since a hidden finding is still in the report"),
)
# fmt: on
PLAN_TABLES: Mapping[str, Sequence[PlanRow]] = {
    "diagnosis": DIAGNOSIS,
    "segmentation": SEGMENTATION,
    "detection": DETECTION,
    "report": REPORT,
}  # fmt: skip
"""`max_side`, `longest_side` and `finest_side` (if small lesions need it) of a first input; `image_voxels` of an affordable median
image, `patch_voxels` of a patch, `step_*` of a batch; `largest_*` if a GPU has memory left; `min_steps` below
which a coarser input or a narrower network is better, and `min_steps_per_fold` for cross-validation to beat one training."""
