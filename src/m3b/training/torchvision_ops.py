"""torchvision beside a PyTorch that its operators were not built for, as its usual build is beside a PyTorch for CPUs.

Such a torchvision cannot load its compiled operators, and then refuses to be imported, and with it transformers' Trainer and
MONAI's detectors. Of these operators detectors need one, non-maximum suppression; here it is declared, and done by NumPy. Importing
this module does that where it is needed, so it comes before transformers; where torchvision is whole or absent nothing happens.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from torch import library as operators

SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_declared: operators.Library | None = None


def suppressed(boxes: torch.Tensor, scores: torch.Tensor, most: float) -> torch.Tensor:
    """Rows of (N, 4) boxes to keep, surest first: of boxes that overlap by more than `most` the surest stays."""
    order = torch.argsort(scores, descending=True, stable=True)
    corners = boxes[order].detach().float().cpu().numpy()
    sizes = (corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1])
    left, kept = np.arange(len(corners)), []
    while len(left):
        first, left = left[0], left[1:]
        kept.append(int(first))
        low = np.maximum(corners[first, :2], corners[left, :2])
        high = np.minimum(corners[first, 2:], corners[left, 2:])
        shared = np.clip(high - low, 0, None).prod(axis=1)
        left = left[shared <= most * np.maximum(sizes[first] + sizes[left] - shared, 1e-9)]
    return order[torch.tensor(kept, dtype=torch.long, device=order.device)]


def mend() -> bool:
    """Declares the operators that torchvision's Python asks for where its compiled ones cannot be loaded; whether it did so."""
    global _declared
    if _declared is not None:
        return True
    found = importlib.util.find_spec("torchvision")
    if found is None or not found.origin or hasattr(torch.ops.torchvision, "nms"):
        return False
    for compiled in Path(found.origin).parent.glob("_C*.so"):
        try:
            torch.ops.load_library(str(compiled))
            return False
        except OSError:
            continue
    _declared = operators.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        _declared.define(name + SCHEMA)
    _declared.impl("nms", suppressed, "CompositeExplicitAutograd")
    return True


def detection() -> ModuleType:
    """`torchvision.models.detection`, ready for use. Raises ImportError where torchvision is absent."""
    mended = mend()
    import torchvision

    if mended:  # else its functions ask for the compiled operators, without looking whether others are there
        torchvision.extension._has_ops = lambda: True
    return torchvision.models.detection  # type: ignore[no-any-return]


mend()
