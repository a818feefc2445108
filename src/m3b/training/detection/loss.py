"""Detection losses: overlap and voxel terms for masks; focal loss of heat maps and generalised IoU for boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from m3b.training.detection.center_detector import cell_centres
from m3b.training.losses import build_mask_loss


def build_loss(plan: Mapping[str, Any], cell: Sequence[int] | None = None) -> nn.Module:
    """Return the loss of plan.json: {"voxel", "alpha", "beta"} for masks (`losses`), {"boxes", "class_weights"} for boxes."""
    if plan["target"] == "boxes":
        terms = plan.get("loss") or {}
        weight = float(terms.get("boxes", 1.0))
        return BoxLoss(len(plan["classes"]), cell or [1] * int(plan["dims"]), weight, terms.get("class_weights"))
    return build_mask_loss(plan)


HEAT_SIGMA = 0.18
"""Standard deviation of the heat map around a centre, as a share of the box's side (TTFNet, Liu et al., AAAI 2020)."""


class BoxLoss(nn.Module):
    """`forward(output (B, K + 2 d K, *cells), boxes (B, M, 2 d + 2)) -> scalar`.

    A row of `boxes` is lower corner, upper corner in input pixels, class (-1: padding), and 1; or 0 for a box that is cut off by the
    border of the patch, inside which the heat map has no loss.
    """

    def __init__(
        self, classes: int, cell: Sequence[int], box_weight: float = 1.0, class_weights: Sequence[float] | None = None
    ) -> None:
        super().__init__()
        self.classes, self.cell, self.box_weight = classes, list(cell), box_weight
        weights = [1.0] * classes if class_weights is None else [float(weight) for weight in class_weights]
        if len(weights) != classes or min(weights, default=0.0) <= 0:
            raise ValueError(f"loss.class_weights needs {classes} numbers above 0, one per class; got {class_weights}")
        self.register_buffer("class_weights", torch.tensor(weights), persistent=False)

    def forward(self, output: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
        d, count = len(self.cell), self.classes
        output, cells = output.float(), output.shape[2:]
        rows = boxes.float().flatten(0, 1)
        image = torch.arange(len(boxes), device=rows.device)[:, None].expand(boxes.shape[:2]).flatten()
        if _is_on_cpu(rows):  # drop padding; on a GPU this would synchronise, and gains less
            is_box = rows[:, 2 * d] >= 0
            rows, image = rows[is_box], image[is_box]
        peaks = self._peaks(rows, cells)
        target, free = self._targets(rows, image, peaks, len(boxes))
        heat_loss = self._heat_loss(output[:, :count], target, free)
        if not len(rows):
            return heat_loss + output[:, count:].sum() * 0.0
        grid_points = cell_centres(cells, self.cell, output.device)
        sides = output[:, count:].unflatten(1, (count, 2 * d)).flatten(3)
        box_losses = self._box_losses(sides, rows, image, peaks.flatten(1), grid_points.flatten(1))
        is_complete = (rows[:, 2 * d] >= 0) & (rows[:, 2 * d + 1] > 0)
        mean = torch.where(is_complete, box_losses, torch.zeros_like(box_losses)).sum() / is_complete.sum().clamp_min(1)
        return heat_loss + self.box_weight * mean

    def _peaks(self, rows: torch.Tensor, cells: Sequence[int]) -> torch.Tensor:
        """Return the (N, *cells) Gaussian of each box, exactly 1 in the cell of its centre."""
        d, profiles = len(self.cell), []
        flat_index = torch.zeros(len(rows), dtype=torch.long, device=rows.device)
        for axis, (cell, n) in enumerate(zip(self.cell, cells, strict=True)):
            low, high = rows[:, axis], rows[:, d + axis]
            centre, sigma = (low + high) / 2, ((high - low) * HEAT_SIGMA).clamp_min(0.4 * cell)
            centres = (torch.arange(n, device=rows.device) + 0.5) * cell
            profile = torch.exp(-0.5 * ((centres - centre[:, None]) / sigma[:, None]) ** 2)
            centre_cell = (centre / cell).long().clamp(0, n - 1)
            profiles.append(profile / profile.gather(1, centre_cell[:, None]).clamp_min(1e-6))
            flat_index = flat_index * n + centre_cell
        gaussian = outer_product(profiles).clamp_max(0.95).flatten(1)
        # exactly one cell, even if the centre lies between two
        return gaussian.scatter(1, flat_index[:, None], 1.0).view(len(rows), *cells)

    def _targets(
        self, rows: torch.Tensor, image: torch.Tensor, peaks: torch.Tensor, images: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (images, K, *cells) largest Gaussian of each class, and bool: cells without heat map loss.

        Args:
            image: (N,) index of the image of each row.
        """
        d, cells = len(self.cell), peaks.shape[1:]
        is_box, is_complete = rows[:, 2 * d] >= 0, rows[:, 2 * d + 1] > 0
        channel = image * self.classes + rows[:, 2 * d].clamp_min(0).long()
        profiles = []
        for axis, step in enumerate(self.cell):
            cell = torch.arange(cells[axis], device=rows.device)
            low = (rows[:, axis] / step).trunc().clamp_min(0)[:, None]
            high = (rows[:, d + axis] / step).ceil().clamp_min(0)[:, None]
            profiles.append(((cell >= low) & (cell < high)).float())
        complete = peaks.flatten(1) * (is_box & is_complete)[:, None]
        incomplete = outer_product(profiles).flatten(1) * (is_box & ~is_complete)[:, None]
        target, ignore = (
            layer.new_zeros(images * self.classes, layer.shape[1])
            .scatter_reduce(0, channel[:, None].expand_as(layer), layer, "amax")
            .view(images, self.classes, *cells)
            for layer in (complete, incomplete)
        )
        return target, ignore > 0

    def _heat_loss(self, logits: torch.Tensor, target: torch.Tensor, free: torch.Tensor) -> torch.Tensor:
        """Return the penalty-reduced focal loss (Law & Deng, ECCV 2018), divided by the number of boxes.

        Both are weighted by class, so that boxes of a frequent class do not outweigh a rare one.
        """
        p = logits.sigmoid()
        is_centre = target >= 0.999
        positive_term = functional.logsigmoid(logits) * (1 - p) ** 2
        negative_term = functional.logsigmoid(-logits) * p**2 * (1 - target) ** 4
        total = torch.where(is_centre, positive_term, torch.where(free, torch.zeros_like(negative_term), negative_term))
        weight = self.class_weights.to(total).view(1, -1, *(1,) * (total.ndim - 2))
        return -(weight * total).sum() / (weight * is_centre).sum().clamp_min(1)

    def _box_losses(
        self,
        sides: torch.Tensor,
        rows: torch.Tensor,
        image: torch.Tensor,
        peaks: torch.Tensor,
        coordinates: torch.Tensor,
    ) -> torch.Tensor:
        """Return (N,) 1 - GIoU of each box, averaged over the cells near its centre with the Gaussian as weight.

        Args:
            sides: (B, K, 2 d, cells) raw distances.
            image: (N,) index of the image of each box.
            peaks: (N, cells).
            coordinates: (d, cells) coordinates.
        """
        d = len(self.cell)
        weight, cells_near = peaks.topk(min(9 if d == 2 else 15, peaks.shape[1]), dim=1)
        low = rows[:, :d].T[..., None]
        high = rows[:, d : 2 * d].T[..., None]
        centre = coordinates[:, cells_near]
        is_inside = ((centre > low) & (centre < high)).all(0)
        is_inside[:, 0] = True
        weight = weight * (weight > 0.2) * is_inside
        label = rows[:, 2 * d].clamp_min(0).long()
        raw = sides[image[:, None], label[:, None], :, cells_near].movedim(-1, 0)  # (2 d, N, n)
        distances = torch.exp(raw.clamp(-6, 7))
        distances = torch.stack([side * cell for side, cell in zip(distances, [*self.cell, *self.cell], strict=True)])
        predicted = torch.cat([centre - distances[:d], centre + distances[d:]])
        box_losses = 1 - generalised_iou(predicted, torch.cat([low, high]).expand_as(predicted))
        return (box_losses * weight).sum(1) / weight.sum(1)


def outer_product(profiles: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the product (N, *n) of profiles (N, n) along each axis."""
    result = profiles[0]
    for profile in profiles[1:]:
        result = result[..., None] * profile[(slice(None), *[None] * (result.ndim - 1))]
    return result


def _is_on_cpu(tensor: torch.Tensor) -> bool:
    return bool(tensor.device.type == "cpu")


def generalised_iou(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return the generalised IoU (Rezatofighi et al., CVPR 2019) of boxes in columns: (2 d, ...) and (2 d, ...) to (...)."""
    d = first.shape[0] // 2
    intersection = (torch.minimum(first[d:], second[d:]) - torch.maximum(first[:d], second[:d])).clamp_min(0).prod(0)
    enclosing = (torch.maximum(first[d:], second[d:]) - torch.minimum(first[:d], second[:d])).prod(0).clamp_min(1e-6)
    total_size = (first[d:] - first[:d]).prod(0) + (second[d:] - second[:d]).prod(0)
    union = (total_size - intersection).clamp_min(1e-6)
    return intersection / union - (enclosing - union) / enclosing
