"""torchvision with a PyTorch that its compiled operators were not built for, such as its usual build with a PyTorch for CPUs.

Such a torchvision cannot load its operators and cannot be imported; neither can vision models of transformers and MONAI's detectors.
Detectors need one operator, non-maximum suppression, which is declared here and computed by NumPy. Importing this module declares it
if necessary, so it must be imported before transformers; with a working torchvision, or none, it does nothing.
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


def suppress_boxes(boxes: torch.Tensor, scores: torch.Tensor, max_overlap: float) -> torch.Tensor:
    """Return the rows of (N, 4) boxes to keep, highest score first: of boxes that overlap by more than `max_overlap` the best
    stays."""
    order = torch.argsort(scores, descending=True, stable=True)
    corners = boxes[order].detach().float().cpu().numpy()
    sizes = (corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1])
    remaining, selected = np.arange(len(corners)), []
    while len(remaining):
        best, remaining = remaining[0], remaining[1:]
        selected.append(int(best))
        low = np.maximum(corners[best, :2], corners[remaining, :2])
        high = np.minimum(corners[best, 2:], corners[remaining, 2:])
        overlap = np.clip(high - low, 0, None).prod(axis=1)
        remaining = remaining[overlap <= max_overlap * np.maximum(sizes[best] + sizes[remaining] - overlap, 1e-9)]
    return order[torch.tensor(selected, dtype=torch.long, device=order.device)]


def declare_operators() -> bool:
    """Declare the operators of torchvision if its compiled ones cannot be loaded; return whether they were declared."""
    global _declared
    if _declared is not None:
        return True
    spec = importlib.util.find_spec("torchvision")
    if spec is None or not spec.origin or hasattr(torch.ops.torchvision, "nms"):
        return False
    for compiled in Path(spec.origin).parent.glob("_C*.so"):
        try:
            torch.ops.load_library(str(compiled))
            return False
        except OSError:
            continue
    _declared = operators.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        _declared.define(name + SCHEMA)
    _declared.impl("nms", suppress_boxes, "CompositeExplicitAutograd")
    return True


def import_detection() -> ModuleType:
    """Return `torchvision.models.detection`. Raises ImportError if torchvision is not installed."""
    is_declared = declare_operators()
    import torchvision

    if is_declared:  # else its functions require the compiled operators
        torchvision.extension._has_ops = lambda: True
    return torchvision.models.detection  # type: ignore[no-any-return]


declare_operators()
