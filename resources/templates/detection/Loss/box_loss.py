"""The detector's loss: focal loss of the heat maps and generalised IoU of the boxes, from plain lists of true boxes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from Model.detector import centres
from torch import nn
from torch.nn import functional

SHARP = 0.18  # of a box's side: the deviation of the bell around its centre (TTFNet, Liu et al., AAAI 2020)


class BoxLoss(nn.Module):
    """`forward(output (B, K + 2 d K, *cells), boxes (B, M, 2 d + 2)) -> scalar`.

    A row of `boxes` is lower corner, upper corner in input pixels, class (-1: no box, padding only), and 1; or 0 for
    a box that is cut off by the border of the patch, inside which the heat map is left free.
    """

    def __init__(
        self,
        classes: int,
        cell: Sequence[int],
        box_weight: float = 1.0,
        class_weights: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        self.classes, self.cell, self.box_weight = classes, list(cell), box_weight
        weights = [1.0] * classes if class_weights is None else [float(weight) for weight in class_weights]
        if len(weights) != classes or min(weights, default=0.0) <= 0:
            raise ValueError(f"loss.class_weights needs {classes} numbers above 0, one a class; got {class_weights}")
        self.register_buffer("class_weights", torch.tensor(weights), persistent=False)

    def forward(self, output: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
        d, count = len(self.cell), self.classes
        output = output.float()
        cells = output.shape[2:]
        middle = centres(cells, self.cell, output.device)
        bells, free, parts, ours = [], [], [], []
        for image, rows in enumerate(boxes.float()):
            if _on_processor(rows):  # padding is left out; on a GPU that would wait for it, and is worth less
                rows = rows[rows[:, 2 * d] >= 0]
            bell = self._bells(rows, middle)
            target, ignore = self._targets(rows, bell, cells)
            bells.append(target)
            free.append(ignore)
            sides = output[image, count:].reshape(count, 2 * d, -1)
            parts.append(self._boxes(sides, rows, bell.flatten(1), middle.flatten(1)))
            ours.append((rows[:, 2 * d] >= 0) & (rows[:, 2 * d + 1] > 0))
        heat = self._heat(output[:, :count], torch.stack(bells), torch.stack(free))
        found, whole = torch.cat(parts), torch.cat(ours)
        found = torch.where(whole, found, torch.zeros_like(found)).sum() / whole.sum().clamp_min(1)
        return heat + self.box_weight * (found if len(whole) else output[:, count:].sum() * 0.0)

    def _bells(self, rows: torch.Tensor, middle: torch.Tensor) -> torch.Tensor:
        """(N, *cells) bell of each box, exactly 1 in the cell that holds its centre."""
        d, cells = len(self.cell), middle.shape[1:]
        flat = middle.flatten(1)
        unit = torch.tensor(self.cell, dtype=rows.dtype, device=rows.device)
        centre = (rows[:, :d] + rows[:, d : 2 * d]) / 2
        sigma = ((rows[:, d : 2 * d] - rows[:, :d]) * SHARP).clamp_min(0.4 * unit)
        away = (flat[None] - centre[..., None]) / sigma[..., None]
        bell = torch.exp(-0.5 * (away**2).sum(1))
        place = (centre / unit).long()
        place = torch.minimum(place.clamp_min(0), torch.tensor(cells, device=rows.device) - 1)
        at = torch.zeros(len(rows), dtype=torch.long, device=rows.device)
        for axis in range(d):
            at = at * cells[axis] + place[:, axis]
        if len(rows):
            bell = (bell / bell.gather(1, at[:, None]).clamp_min(1e-6)).clamp_max(0.95)
            bell.scatter_(1, at[:, None], 1.0)  # one cell alone, also where the centre lies between two
        return bell.reshape(len(rows), *cells)

    def _targets(
        self, rows: torch.Tensor, bell: torch.Tensor, cells: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(K, *cells) largest bell of each class, and bool: where the heat map is free."""
        d, n = len(self.cell), bell[0].numel() if len(bell) else 1
        there, whole = rows[:, 2 * d] >= 0, rows[:, 2 * d + 1] > 0
        if not len(rows):
            empty = torch.zeros(self.classes, *cells, device=rows.device)
            return empty, empty > 0
        label = rows[:, 2 * d].clamp_min(0).long()[:, None].expand(-1, n)
        hills = bell.flatten(1) * (there & whole)[:, None]
        target = hills.new_zeros(self.classes, n).scatter_reduce(0, label, hills, "amax")
        inside = torch.ones_like(bell, dtype=torch.bool)
        for axis, c in enumerate(self.cell):
            place = torch.arange(cells[axis], device=rows.device)
            low = (rows[:, axis] / c).trunc().clamp_min(0)[:, None]
            high = (rows[:, d + axis] / c).ceil().clamp_min(0)[:, None]
            inside = inside & ((place >= low) & (place < high)).view(
                len(rows), *(-1 if a == axis else 1 for a in range(d))
            )
        cut = (inside.flatten(1) & (there & ~whole)[:, None]).float()
        ignore = cut.new_zeros(self.classes, n).scatter_reduce(0, label, cut, "amax")
        return target.view(-1, *cells), ignore.view(-1, *cells) > 0

    def _heat(self, logits: torch.Tensor, target: torch.Tensor, free: torch.Tensor) -> torch.Tensor:
        """Penalty-reduced focal loss (Law & Deng, ECCV 2018), divided by the number of boxes; both weighted by class:
        the boxes of a frequent class leave a rare one little."""
        p = logits.sigmoid()
        top = target >= 0.999
        right = functional.logsigmoid(logits) * (1 - p) ** 2
        wrong = functional.logsigmoid(-logits) * p**2 * (1 - target) ** 4
        total = torch.where(top, right, torch.where(free, torch.zeros_like(wrong), wrong))
        weight = self.class_weights.to(total).view(1, -1, *(1,) * (total.ndim - 2))
        return -(weight * total).sum() / (weight * top).sum().clamp_min(1)

    def _boxes(self, sides: torch.Tensor, rows: torch.Tensor, bell: torch.Tensor, flat: torch.Tensor) -> torch.Tensor:
        """(N,) 1 - GIoU of each box, averaged over the cells near its centre by the bell.

        Args:
            sides: (K, 2 d, cells) raw distances.
            bell: (N, cells).
            flat: (d, cells) coordinates.
        """
        d = len(self.cell)
        if not len(rows):
            return sides.new_zeros(0)
        weight, at = bell.topk(min(9 if d == 2 else 15, bell.shape[1]), dim=1)
        low, high, centre = rows[:, :d].T[..., None], rows[:, d : 2 * d].T[..., None], flat[:, at]  # (d, N, n)
        inside = ((centre > low) & (centre < high)).all(0)
        inside[:, 0] = True
        weight = weight * (weight > 0.2) * inside
        label = rows[:, 2 * d].clamp_min(0).long()
        numbers = torch.arange(2 * d, device=rows.device)
        raw = sides[label[None, :, None], numbers[:, None, None], at[None]]  # (2 d, N, n)
        unit = torch.tensor([*self.cell, *self.cell], dtype=raw.dtype, device=raw.device)[:, None, None]
        reach = torch.exp(raw.clamp(-6, 7)) * unit
        found = torch.cat([centre - reach[:d], centre + reach[d:]])
        apart = 1 - giou(found, torch.cat([low, high]).expand_as(found))
        return (apart * weight).sum(1) / weight.sum(1)


def _on_processor(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu"


def giou(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Generalised IoU (Rezatofighi et al., CVPR 2019) of columns: (2 d, ...) and (2 d, ...) to (...)."""
    d = first.shape[0] // 2
    shared = (torch.minimum(first[d:], second[d:]) - torch.maximum(first[:d], second[:d])).clamp_min(0).prod(0)
    around = (torch.maximum(first[d:], second[d:]) - torch.minimum(first[:d], second[:d])).prod(0).clamp_min(1e-6)
    size = (first[d:] - first[:d]).prod(0) + (second[d:] - second[:d]).prod(0)
    union = (size - shared).clamp_min(1e-6)
    return shared / union - (around - union) / around
