"""Compare the templates' 3D convolution by slices with PyTorch's own, on one small patch on a processor.

    python benchmarks/conv3d_cost.py [--times 9] [--threads 2]

Forward and backward, float32, kernel 3. The two take turns. The script prints both medians in milliseconds and their ratio,
for patches on either side of the limit (`SMALL`) above which PyTorch uses oneDNN itself.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1] / "resources" / "templates" / "shared"))
from unet import SMALL, Conv3d

SHAPES = ((8, 32, 32, 32), (16, 32, 32, 32), (16, 32, 32, 64), (32, 16, 16, 16), (64, 8, 8, 8), (16, 48, 48, 48))
"""Channels and lengths of patches."""


def time_step(layer: nn.Module, patch: torch.Tensor) -> float:
    """Return the time of one step forward and backward."""
    started = time.perf_counter()
    layer(patch).sum().backward()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {options.threads} threads; by slices up to {SMALL} numbers in four sides")
    print("channels and sides     PyTorch ms   by slices ms   ratio")
    for channels, *sides in SHAPES:
        patch = torch.randn(1, channels, *sides, requires_grad=True)
        layers = [layer_class(channels, channels, 3, padding=1, bias=False) for layer_class in (nn.Conv3d, Conv3d)]
        times_s = [[time_step(layer, patch) for layer in layers] for _ in range(options.times + 1)][1:]
        pytorch_ms, sliced_ms = (1e3 * statistics.median(column) for column in zip(*times_s, strict=True))
        print(f"{f'{channels} x {sides}':22} {pytorch_ms:10.2f} {sliced_ms:14.2f} {pytorch_ms / sliced_ms:7.2f}")


if __name__ == "__main__":
    main()
