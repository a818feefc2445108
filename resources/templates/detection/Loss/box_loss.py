"""The detector's loss: focal loss of the heat maps and generalised IoU of the boxes, from plain lists of true boxes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from Model.detector import centres, distances
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
        bells, free, parts = [], [], []
        for image, rows in enumerate(boxes.float()):
            rows = rows[rows[:, 2 * d] >= 0]
            bell = self._bells(rows, middle)
            target, ignore = self._targets(rows, bell, cells)
            bells.append(target)
            free.append(ignore)
            sides = output[image, count:].reshape(count, 2 * d, *cells)
            parts.append(self._boxes(sides, rows, bell, middle))
        heat = self._heat(output[:, :count], torch.stack(bells), torch.stack(free))
        found = torch.cat(parts)
        return heat + self.box_weight * (found.mean() if len(found) else output[:, count:].sum() * 0.0)

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
        d = len(self.cell)
        target = torch.zeros(self.classes, *cells, device=rows.device)
        ignore = torch.zeros(self.classes, *cells, dtype=torch.bool, device=rows.device)
        for row, hill in zip(rows, bell, strict=True):
            label = int(row[2 * d])
            if row[2 * d + 1] > 0:
                target[label] = torch.maximum(target[label], hill)
            else:
                place = tuple(
                    slice(max(0, int(row[axis] / c)), max(0, int(-(-row[d + axis] // c))))
                    for axis, c in enumerate(self.cell)
                )
                ignore[(label, *place)] = True
        return target, ignore

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

    def _boxes(self, sides: torch.Tensor, rows: torch.Tensor, bell: torch.Tensor, middle: torch.Tensor) -> torch.Tensor:
        """(N,) 1 - GIoU of each box, averaged over the cells near its centre by the bell; boxes cut in two are left out."""
        d, flat = len(self.cell), middle.flatten(1)
        losses = []
        for row, hill in zip(rows, bell, strict=True):
            if row[2 * d + 1] <= 0:
                continue
            weight, at = hill.flatten().topk(min(9 if d == 2 else 15, hill.numel()))
            inside = ((flat[:, at] > row[:d, None]) & (flat[:, at] < row[d : 2 * d, None])).all(0)
            inside[0] = True
            weight = weight * (weight > 0.2) * inside
            raw = sides[int(row[2 * d])].flatten(1)[:, at]
            reach = distances(raw[..., None] if d == 1 else raw.view(2 * d, -1, *(1,) * (d - 1)), self.cell).flatten(1)
            found = torch.cat([flat[:, at] - reach[:d], flat[:, at] + reach[d:]])
            true = row[: 2 * d, None].expand_as(found)
            losses.append(((1 - giou(found, true)) * weight).sum() / weight.sum())
        return torch.stack(losses) if losses else sides.new_zeros(0)


def giou(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Generalised IoU (Rezatofighi et al., CVPR 2019) of columns: (2 d, N) and (2 d, N) to (N,)."""
    d = first.shape[0] // 2
    shared = (torch.minimum(first[d:], second[d:]) - torch.maximum(first[:d], second[:d])).clamp_min(0).prod(0)
    around = (torch.maximum(first[d:], second[d:]) - torch.minimum(first[:d], second[:d])).prod(0).clamp_min(1e-6)
    size = (first[d:] - first[:d]).prod(0) + (second[d:] - second[:d]).prod(0)
    union = (size - shared).clamp_min(1e-6)
    return shared / union - (around - union) / around
