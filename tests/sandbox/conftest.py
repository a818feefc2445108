from __future__ import annotations

from sandbox_kit import bench, confined, make_bench

__all__ = ["bench", "confined", "make_bench"]
