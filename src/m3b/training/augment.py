"""Random changes of a whole batch at once, on the batch's own device: affine, flips, intensity, noise, erasing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import pi
from typing import Any

import torch
from torch.nn import functional


class Augment:
    """`rule` is plan.json's "augment"; every part may be 0 or absent.

    flip: list of axes that may be mirrored ("h" rows, "w" columns, "d" slices); rotate: degrees in the image plane;
    zoom, shift: shares; contrast, brightness: in standard deviations; gamma: share; noise: standard deviation;
    erase: share of the image's side; channel_dropout: share of the cases in which a channel is 0, as if the case lacked it.
    """

    def __init__(self, rule: Mapping[str, Any]) -> None:
        self.rule = dict(rule)

    def __call__(self, batch: torch.Tensor) -> torch.Tensor:
        """(B, C, H, W[, D]) float to the same."""
        batch = self._flip(batch)
        if any(self.rule.get(key) for key in ("rotate", "zoom", "shift")):
            batch = self._affine(batch)
        return self._erase(self._intensity(batch))

    def _draw(self, batch: torch.Tensor, low: float, high: float) -> torch.Tensor:
        return torch.empty(batch.shape[0], device=batch.device).uniform_(low, high)

    def _flip(self, batch: torch.Tensor) -> torch.Tensor:
        for axis, name in enumerate("hwd"[: batch.ndim - 2], start=2):
            if name in self.rule.get("flip", ()):
                chosen = torch.rand(batch.shape[0], device=batch.device) < 0.5
                batch = torch.where(chosen.view(-1, *(1,) * (batch.ndim - 1)), batch.flip(axis), batch)
        return batch

    def _affine(self, batch: torch.Tensor) -> torch.Tensor:
        """Rotation in the row-column plane, one zoom for all axes, shifts; borders are continued."""
        n, dims = batch.shape[0], batch.ndim - 2
        turn = float(self.rule.get("rotate") or 0) * pi / 180
        angle, zoom = self._draw(batch, -turn, turn), float(self.rule.get("zoom") or 0)
        scale = 1.0 / self._draw(batch, 1 - zoom, 1 + zoom)
        theta = torch.zeros(n, dims, dims + 1, device=batch.device)
        rows, columns = (0, 1) if dims == 2 else (1, 2)  # torch's grid names the axes from the last to the first
        ratio = batch.shape[-1] / batch.shape[-2] if dims == 2 else batch.shape[-2] / batch.shape[-3]
        for axis in range(dims):
            theta[:, axis, axis] = scale
            theta[:, axis, dims] = self._draw(batch, -1, 1) * 2 * float(self.rule.get("shift") or 0)
        theta[:, rows, rows] = scale * torch.cos(angle)
        theta[:, columns, columns] = scale * torch.cos(angle)
        theta[:, rows, columns] = -scale * torch.sin(angle) / ratio
        theta[:, columns, rows] = scale * torch.sin(angle) * ratio
        grid = functional.affine_grid(theta, list(batch.shape), align_corners=False)
        return functional.grid_sample(batch, grid, padding_mode="border", align_corners=False)

    def _intensity(self, batch: torch.Tensor) -> torch.Tensor:
        there = self._channels(batch)
        shape = (-1, *(1,) * (batch.ndim - 1))
        contrast, bright = float(self.rule.get("contrast") or 0), float(self.rule.get("brightness") or 0)
        gamma, noise = float(self.rule.get("gamma") or 0), float(self.rule.get("noise") or 0)
        if contrast or bright:
            centre = batch.flatten(1).mean(1).view(shape)
            gain = self._draw(batch, 1 - contrast, 1 + contrast).view(shape)
            batch = (batch - centre) * gain + centre + self._draw(batch, -bright, bright).view(shape)
        if gamma:
            low = batch.flatten(1).amin(1).view(shape)
            reach = (batch.flatten(1).amax(1).view(shape) - low).clamp_min(1e-6)
            power = torch.exp(self._draw(batch, -gamma, gamma)).view(shape)
            batch = ((batch - low) / reach).clamp(0, 1) ** power * reach + low
        if noise:
            batch = batch + torch.randn_like(batch) * self._draw(batch, 0, noise).view(shape)
        return batch if there is None else batch * there

    def _channels(self, batch: torch.Tensor) -> torch.Tensor | None:
        """(B, C, 1, ...) 0 for channels that a case lacks, or that are left out; one stays. None without `channel_dropout`."""
        share = float(self.rule.get("channel_dropout") or 0)
        if not share:
            return None
        there = (batch != 0).flatten(2).any(2)
        drawn = torch.rand(batch.shape[:2], device=batch.device) * there
        kept = there & ((drawn >= share) | (drawn == drawn.amax(1, keepdim=True)))
        return kept.view(*batch.shape[:2], *(1,) * (batch.ndim - 2))

    def _erase(self, batch: torch.Tensor) -> torch.Tensor:
        """One block a case, in half of the cases, set to the case's mean."""
        share = float(self.rule.get("erase") or 0)
        if not share:
            return batch
        inside = torch.ones(batch.shape[0], *(1,) * (batch.ndim - 1), dtype=torch.bool, device=batch.device)
        for axis, length in enumerate(batch.shape[2:], start=2):
            place = torch.linspace(0, 1, length, device=batch.device).view(
                *(1,) * axis, -1, *(1,) * (batch.ndim - axis - 1)
            )
            centre = self._draw(batch, 0, 1).view(-1, *(1,) * (batch.ndim - 1))
            inside = inside & ((place - centre).abs() < share / 2)
        chosen = (self._draw(batch, 0, 1) < 0.5).view(-1, *(1,) * (batch.ndim - 1))
        return torch.where(inside & chosen, batch.flatten(1).mean(1).view(-1, *(1,) * (batch.ndim - 1)), batch)


def row_like(tensor: torch.Tensor, numbers: Sequence[float]) -> torch.Tensor:
    """(len(numbers),) of the type and on the device of `tensor`, filled there: `torch.tensor` would copy, and wait for the device."""
    return torch.stack([tensor.new_full((), number) for number in numbers])
