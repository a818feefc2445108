"""Loss for masks that are boxes: background outside, the core of each box, and the tightness of its sides."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from m3b.training.ignored_voxels import IGNORE


class BoxLoss(nn.Module):
    """Mask loss of the voxels whose class is known, plus the tightness of boxes (Hsu et al., NeurIPS 2019).

    Boxes are tight: each slice of a box across an axis (a line of voxels in 2D) meets the structure somewhere, so its most probable
    voxel is taken as positive. Slices that meet the border of the patch may go on outside, and do not count.

    Args:
        mask_loss: loss of (B, C, *shape) logits and masks with `IGNORE`.
        overlap: whether classes have a channel each.
    """

    def __init__(self, mask_loss: nn.Module, overlap: bool) -> None:
        super().__init__()
        self.mask_loss, self.overlap = mask_loss, overlap

    def forward(self, logits: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the scalar loss; masks are those of `box_masks.mark_boxes`."""
        classes = logits.shape[1] - (not self.overlap)
        is_open = (mask >= IGNORE - (1 if self.overlap else classes)) & (mask != IGNORE)
        known = torch.where(is_open, torch.full_like(mask, IGNORE), mask)
        loss: torch.Tensor = self.mask_loss(logits, known)
        logits = logits.float()
        for k in range(classes):
            log_probability = functional.logsigmoid(logits[:, k]) if self.overlap else logits.log_softmax(1)[:, k + 1]
            layer = mask[:, k] if self.overlap else mask
            number = 1 if self.overlap else k + 1
            loss = loss + tightness_loss(log_probability, (layer == number) | (layer == IGNORE - number))
        return loss


def tightness_loss(log_probability: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
    """Return minus the mean of the largest log probability in each slice of a box across an axis; both (B, *shape)."""
    total, count = log_probability.new_zeros(()), log_probability.new_zeros(())
    for axis in range(1, boxes.ndim):
        values, is_whole = log_probability, boxes
        for other_axis in (other for other in range(1, boxes.ndim) if other != axis):
            values, is_whole_line = spread_line_maxima(values, boxes, other_axis)
            is_whole = is_whole & is_whole_line
        total = total - torch.where(is_whole, values, 0.0).sum()
        count = count + is_whole.sum()
    return total / count.clamp_min(1)


def spread_line_maxima(values: torch.Tensor, boxes: torch.Tensor, axis: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return for each voxel of a box the maximum of its line of box voxels along an axis, and whether both ends lie in the patch."""
    inside = boxes.movedim(axis, -1)
    line = (inside & ~functional.pad(inside, (1, 0))[..., :-1]).cumsum(-1)  # lines of a row are numbered from 1
    is_cut = (line == 1) & inside[..., :1] | (line == line[..., -1:]) & inside[..., -1:]
    line = torch.where(inside, line, 0)
    moved = values.movedim(axis, -1)
    maxima = moved.new_full((*moved.shape[:-1], moved.shape[-1] // 2 + 2), float("-inf"))
    maxima = maxima.scatter_reduce(-1, line, moved, "amax")
    return maxima.gather(-1, line).movedim(-1, axis), (inside & ~is_cut).movedim(-1, axis)
