"""Random augmentation of a whole batch on its own device: affine, flips, intensity, noise, erasing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import pi
from typing import Any

import torch
from torch.nn import functional


class Augment:
    """Augmentation by plan.json's "augment"; every part may be 0 or absent.

    flip: axes that may be mirrored ("h" rows, "w" columns, "d" slices); rotate: degrees in the image plane; zoom, shift: shares;
    contrast, brightness: in standard deviations; gamma: share; noise: standard deviation; erase: share of the image's side;
    channel_dropout: share of the cases in which a channel is set to 0, as if it were missing.
    """

    def __init__(self, rule: Mapping[str, Any]) -> None:
        self.rule = dict(rule)

    def __call__(self, batch: torch.Tensor) -> torch.Tensor:
        """Return the augmented batch, (B, C, H, W[, D]) float."""
        batch = self._flip(batch)
        if any(self.rule.get(key) for key in ("rotate", "zoom", "shift")):
            batch = self._affine(batch)
        return self._erase(self._intensity(batch))

    def _draw(self, batch: torch.Tensor, low: float, high: float) -> torch.Tensor:
        return torch.empty(batch.shape[0], device=batch.device).uniform_(low, high)

    def _flip(self, batch: torch.Tensor) -> torch.Tensor:
        for axis, name in enumerate("hwd"[: batch.ndim - 2], start=2):
            if name in self.rule.get("flip", ()):
                is_selected = torch.rand(batch.shape[0], device=batch.device) < 0.5
                batch = torch.where(is_selected.view(-1, *(1,) * (batch.ndim - 1)), batch.flip(axis), batch)
        return batch

    def _affine(self, batch: torch.Tensor) -> torch.Tensor:
        """Rotate in the row-column plane, zoom all axes alike and shift; borders are continued."""
        n, dims = batch.shape[0], batch.ndim - 2
        max_angle = float(self.rule.get("rotate") or 0) * pi / 180
        angle, zoom = self._draw(batch, -max_angle, max_angle), float(self.rule.get("zoom") or 0)
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
        is_present = self._channels(batch)
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
        return batch if is_present is None else batch * is_present

    def _channels(self, batch: torch.Tensor) -> torch.Tensor | None:
        """Return (B, C, 1, ...) 0 for missing or dropped channels, at least one kept a case; None without `channel_dropout`."""
        share = float(self.rule.get("channel_dropout") or 0)
        if not share:
            return None
        is_present = (batch != 0).flatten(2).any(2)
        random_values = torch.rand(batch.shape[:2], device=batch.device) * is_present
        is_kept = is_present & ((random_values >= share) | (random_values == random_values.amax(1, keepdim=True)))
        return is_kept.view(*batch.shape[:2], *(1,) * (batch.ndim - 2))

    def _erase(self, batch: torch.Tensor) -> torch.Tensor:
        """Set one block to the case's mean, in half of the cases."""
        share = float(self.rule.get("erase") or 0)
        if not share:
            return batch
        is_inside = torch.ones(batch.shape[0], *(1,) * (batch.ndim - 1), dtype=torch.bool, device=batch.device)
        for axis, length in enumerate(batch.shape[2:], start=2):
            position = torch.linspace(0, 1, length, device=batch.device).view(
                *(1,) * axis, -1, *(1,) * (batch.ndim - axis - 1)
            )
            centre = self._draw(batch, 0, 1).view(-1, *(1,) * (batch.ndim - 1))
            is_inside = is_inside & ((position - centre).abs() < share / 2)
        is_selected = (self._draw(batch, 0, 1) < 0.5).view(-1, *(1,) * (batch.ndim - 1))
        return torch.where(is_inside & is_selected, batch.flatten(1).mean(1).view(-1, *(1,) * (batch.ndim - 1)), batch)


def vector_like(tensor: torch.Tensor, numbers: Sequence[float]) -> torch.Tensor:
    """Return (len(numbers),) with the type and device of `tensor`, filled there: `torch.tensor` would copy and synchronise."""
    return torch.stack([tensor.new_full((), number) for number in numbers])
