"""Between MONAI's configuration and the delivered code in `deliverable/`; nothing here is specific to one model."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

CODE = Path(__file__).resolve().parent / "deliverable"


def _parts() -> Any:
    if str(CODE) not in sys.path:
        sys.path.insert(0, str(CODE))
    import parts  # type: ignore[import-not-found]

    return parts


def network() -> torch.nn.Module:
    """The network with random weights; `models/model.pt` holds the trained ones."""
    source = _parts()
    module: torch.nn.Module = source.parts(weights=False)[source.facts()["main"]]["module"]
    return module


def trained(module: torch.nn.Module, file: str, device: Any) -> torch.nn.Module:
    """The network with the weights of a file that holds tensors and nothing else."""
    module.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    return module.to(device).eval()


class Prepare:
    """A MONAI-style transform: the file under `key` becomes the network's input, float32 (C, H, W[, D])."""

    def __init__(self, key: str = "image") -> None:
        self.key = key

    def __call__(self, item: Mapping[str, Any]) -> dict[str, Any]:
        return {**item, self.key: _parts().prepare(item[self.key]), "path": item[self.key]}


class Answer:
    """The network's output for one image as class probabilities and a decision."""

    def __call__(self, row: torch.Tensor) -> dict[str, Any]:
        answer: dict[str, Any] = _parts().answer(row.cpu())
        return answer


class Evaluator:
    """`run()`: images through transforms, network and postprocessing; one JSON object an image goes to `output`."""

    def __init__(
        self,
        device: Any,
        dataset: Iterable[Mapping[str, Any]],
        network: torch.nn.Module,
        inferer: Callable[..., torch.Tensor],
        postprocessing: Callable[[torch.Tensor], dict[str, Any]],
        output: str,
    ) -> None:
        self.device, self.dataset, self.network = device, dataset, network
        self.inferer, self.postprocessing, self.output = inferer, postprocessing, output

    def run(self) -> list[dict[str, Any]]:
        answers = []
        for item in self.dataset:
            with torch.no_grad():
                rows = self.inferer(item["image"][None].to(self.device), self.network)
            answers.append({"image": item["path"], **self.postprocessing(rows[0])})
        Path(self.output).write_text(json.dumps(answers, indent=1), encoding="utf-8")
        return answers


class Workflow:
    """`run()`: as `python predict.py IMAGE... -o OUTPUT`, with the network of this bundle."""

    def __init__(self, network: torch.nn.Module, images: Sequence[Any], output: str) -> None:
        self.network, self.images, self.output = network, images, output

    def run(self) -> None:
        source = _parts()
        source.use(self.network)
        request_file = Path(self.output).with_suffix(".asked.json")
        request_file.write_text(json.dumps(list(self.images)), encoding="utf-8")
        try:
            source.predict.main(["--list", str(request_file), "-o", self.output])
        finally:
            request_file.unlink()
