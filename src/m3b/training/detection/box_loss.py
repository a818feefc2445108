"""The detector's loss: focal loss of the heat maps and generalised IoU of the boxes, from plain lists of true boxes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from m3b.training.detection.center_detector import centres

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
        output, cells = output.float(), output.shape[2:]
        rows = boxes.float().flatten(0, 1)
        image = torch.arange(len(boxes), device=rows.device)[:, None].expand(boxes.shape[:2]).flatten()
        if _on_processor(rows):  # padding is left out; on a GPU that would wait for it, and is worth less
            there = rows[:, 2 * d] >= 0
            rows, image = rows[there], image[there]
        bell = self._bells(rows, cells)
        target, free = self._targets(rows, image, bell, len(boxes))
        heat = self._heat(output[:, :count], target, free)
        if not len(rows):
            return heat + output[:, count:].sum() * 0.0
        middle = centres(cells, self.cell, output.device)
        sides = output[:, count:].unflatten(1, (count, 2 * d)).flatten(3)
        apart = self._boxes(sides, rows, image, bell.flatten(1), middle.flatten(1))
        whole = (rows[:, 2 * d] >= 0) & (rows[:, 2 * d + 1] > 0)
        mean = torch.where(whole, apart, torch.zeros_like(apart)).sum() / whole.sum().clamp_min(1)
        return heat + self.box_weight * mean

    def _bells(self, rows: torch.Tensor, cells: Sequence[int]) -> torch.Tensor:
        """(N, *cells) bell of each box, exactly 1 in the cell that holds its centre."""
        d, profiles = len(self.cell), []
        at = torch.zeros(len(rows), dtype=torch.long, device=rows.device)
        for axis, (cell, n) in enumerate(zip(self.cell, cells, strict=True)):
            low, high = rows[:, axis], rows[:, d + axis]
            centre, sigma = (low + high) / 2, ((high - low) * SHARP).clamp_min(0.4 * cell)
            middle = (torch.arange(n, device=rows.device) + 0.5) * cell
            profile = torch.exp(-0.5 * ((middle - centre[:, None]) / sigma[:, None]) ** 2)
            place = (centre / cell).long().clamp(0, n - 1)
            profiles.append(profile / profile.gather(1, place[:, None]).clamp_min(1e-6))
            at = at * n + place
        bell = outer(profiles).clamp_max(0.95).flatten(1)
        # one cell alone, also where the centre lies between two
        return bell.scatter(1, at[:, None], 1.0).view(len(rows), *cells)

    def _targets(
        self, rows: torch.Tensor, image: torch.Tensor, bell: torch.Tensor, images: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(images, K, *cells) largest bell of each class, and bool: where the heat map is free. `image` is that of each row."""
        d, cells = len(self.cell), bell.shape[1:]
        there, whole = rows[:, 2 * d] >= 0, rows[:, 2 * d + 1] > 0
        place = image * self.classes + rows[:, 2 * d].clamp_min(0).long()
        profiles = []
        for axis, c in enumerate(self.cell):
            cell = torch.arange(cells[axis], device=rows.device)
            low = (rows[:, axis] / c).trunc().clamp_min(0)[:, None]
            high = (rows[:, d + axis] / c).ceil().clamp_min(0)[:, None]
            profiles.append(((cell >= low) & (cell < high)).float())
        hills = bell.flatten(1) * (there & whole)[:, None]
        cut = outer(profiles).flatten(1) * (there & ~whole)[:, None]
        target, ignore = (
            part.new_zeros(images * self.classes, part.shape[1])
            .scatter_reduce(0, place[:, None].expand_as(part), part, "amax")
            .view(images, self.classes, *cells)
            for part in (hills, cut)
        )
        return target, ignore > 0

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

    def _boxes(
        self, sides: torch.Tensor, rows: torch.Tensor, image: torch.Tensor, bell: torch.Tensor, flat: torch.Tensor
    ) -> torch.Tensor:
        """(N,) 1 - GIoU of each box, averaged over the cells near its centre by the bell.

        Args:
            sides: (B, K, 2 d, cells) raw distances.
            image: (N,) in which image each box lies.
            bell: (N, cells).
            flat: (d, cells) coordinates.
        """
        d = len(self.cell)
        weight, at = bell.topk(min(9 if d == 2 else 15, bell.shape[1]), dim=1)
        low, high, centre = rows[:, :d].T[..., None], rows[:, d : 2 * d].T[..., None], flat[:, at]  # (d, N, n)
        inside = ((centre > low) & (centre < high)).all(0)
        inside[:, 0] = True
        weight = weight * (weight > 0.2) * inside
        label = rows[:, 2 * d].clamp_min(0).long()
        raw = sides[image[:, None], label[:, None], :, at].movedim(-1, 0)  # (2 d, N, n)
        reach = torch.exp(raw.clamp(-6, 7))
        reach = torch.stack([side * cell for side, cell in zip(reach, [*self.cell, *self.cell], strict=True)])
        found = torch.cat([centre - reach[:d], centre + reach[d:]])
        apart = 1 - giou(found, torch.cat([low, high]).expand_as(found))
        return (apart * weight).sum(1) / weight.sum(1)


def outer(profiles: Sequence[torch.Tensor]) -> torch.Tensor:
    """(N, n) of each axis to their product (N, *n)."""
    result = profiles[0]
    for profile in profiles[1:]:
        result = result[..., None] * profile[(slice(None), *[None] * (result.ndim - 1))]
    return result


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
