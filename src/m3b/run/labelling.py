"""Masks for images that have none, prompted for by the Data Engineer where the user has approved it (`label_with`).

An episode of `m3b.interactive` an image, kept whole in the run folder: journal, a picture of every turn, the mask. The masks are
put into `work/` for training; a register out of the agents' reach says which they are, so that none is ever test truth, and
card and report count them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.agents.roles import DATA_ENGINEER
from m3b.data.index import Index
from m3b.data.kinds.segmentation import ORIGIN
from m3b.data.records import Record
from m3b.data.spec.places import PROMPTED
from m3b.errors import DataError, ToolError, WrongUse
from m3b.untrusted import is_file, sha256, write_whole
from m3b.writing import replace_text

if TYPE_CHECKING:
    from m3b.interactive.result import SegmentationResult
    from m3b.interactive.segmenter import Segmenter
    from m3b.run.context import RunContext
    from m3b.tools.own import Bound

FOLDER, REGISTER = "labelling", "masks.json"
MOST = 50
"""Images a call."""
LEAST_IOU = 0.5
"""What the segmenter must expect of a mask's overlap for it to be taught."""
TOLD = (
    "The user has approved that images without a mask are labelled: `label_images` prompts a segmenter for them. Their masks "
    "teach and never test, so the test cases need masks of their own. Label only what the request asks for, call the target "
    "like its class, and hand the reading over as usual: m3b adds the masks to the index that it makes."
)


class Labelling:
    """The masks that were prompted for in one run.

    Args:
        run: whose Data Engineer's model looks at the images, and whose budget is spent.
        segmenter: a folder that `m3b.interactive.open_segmenter` opens.
    """

    def __init__(self, run: RunContext, segmenter: Path) -> None:
        self.run, self.place = run, segmenter
        self.folder = run.folder.folder / FOLDER
        self._opened: Segmenter | None = None

    @property
    def tools(self) -> dict[str, Bound]:
        """What the Data Engineer may call besides."""
        from m3b.tools.own import bound

        def label_images(images: list[str], target: str) -> str:
            """Mark a target in images that have no mask: a segmenter is prompted, its answer looked at and corrected. The user
            has approved it. These masks are for training alone.

            Args:
                images: paths of pictures or volumes without a mask, as an index names them (data/NAME/...), at most 50 a call.
                target: what to mark, in the words of its class.
            """
            return self.label(images, target)

        return bound([label_images])

    def label(self, images: Sequence[str], target: str) -> str:
        """Episodes on these images, one after the other; what came of each, in lines.

        Raises:
            ToolError: no images or too many, a path that leads nowhere, a model that sees nothing, a segmenter that cannot be opened.
        """
        if not images or len(images) > MOST:
            raise ToolError(f"label_images: {len(images)} images; give 1 to {MOST} a call.")
        if not target.strip():
            raise ToolError("label_images: the target is empty; name the class that is to be marked.")
        files = {image: self._file(image) for image in images}
        labelled = {(row["image"], row["target"]) for row in self.rows()}
        lines = []
        for image, file in files.items():
            if (image, target) in labelled:
                lines.append(f"{image}: labelled before")
                continue
            self.run.budget.check()
            lines.append(f"{image}: {self._label_image(image, file, target)}")
        return "\n".join(lines)

    def _file(self, image: str) -> Path:
        file = self.run.tools.context.roots.resolve(image)
        if not image.startswith("data/") or not file.exists():
            raise ToolError(f"label_images: there is no image {image}; name images as an index does (data/NAME/...).")
        return file

    def _label_image(self, image: str, file: Path, target: str) -> str:
        """One episode; what came of it."""
        rows = self.rows()
        number = len(list(self.folder.glob("[0-9]*"))) + 1 if self.folder.is_dir() else 1
        segmentation = self._episode(file, target, self.folder / f"{number:05d}")
        self.run.budget.spend(segmentation.usage)
        if segmentation.mask_file is None or not segmentation.mask.any():
            return f"no mask ({segmentation.status}{': ' + segmentation.reason if segmentation.reason else ''})"
        if segmentation.score < LEAST_IOU:
            return f"no mask: the best has an expected IoU of {segmentation.score:.2f}, and {LEAST_IOU:g} is the least"
        name = f"{PROMPTED}/{number:05d}{''.join(segmentation.mask_file.suffixes)}"
        content = segmentation.mask_file.read_bytes()
        write_whole(self.run.folder.work, name, content)
        row = {
            "image": image, "target": target, "file": name, "sha256": hashlib.sha256(content).hexdigest(),
            "segmenter": segmentation.segmenter,
            "llm": segmentation.llm, "expected_iou": round(segmentation.score, 4), "turns": len(segmentation.turns),
            "status": segmentation.status,
        }  # fmt: skip
        self._keep([*rows, row])
        return (
            f"mask of {segmentation.mask.mean():.1%} of the image, expected IoU {segmentation.score:.2f}, "
            f"{len(segmentation.turns)} turns"
        )

    def _episode(self, file: Path, target: str, out: Path) -> SegmentationResult:
        from m3b.interactive import open_segmenter, segment

        try:
            self._opened = self._opened or open_segmenter(self.place)
            return segment(
                file, target, llm=self.run.asked(DATA_ENGINEER.name), segmenter=self._opened, out=out,
                cancelled=self.run.cancel.is_set,
            )  # fmt: skip
        except (WrongUse, DataError) as error:
            raise ToolError(f"label_images: {error}") from error

    def rows(self) -> list[dict[str, Any]]:
        """The register: image, target, file below `work/`, and how each mask came about."""
        file = self.folder / REGISTER
        register: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []
        return register

    def _keep(self, rows: Sequence[dict[str, Any]]) -> None:
        replace_text(self.folder / REGISTER, json.dumps(rows, indent=1, ensure_ascii=False))
        mask_list = [{key: row[key] for key in ("image", "target", "file")} for row in rows]
        write_whole(self.run.folder.work, f"{PROMPTED}/masks.json", json.dumps(mask_list, indent=1).encode())

    def settle(self) -> None:
        """Put the list of masks into `work/` as the register has it, whatever scripts have made of it."""
        if rows := self.rows():
            self._keep(rows)

    def refused(self, index: Index, base: Path, *, scripted: bool) -> str:
        """Why an index cannot stand: a test case whose truth was prompted for; empty where none is.

        Args:
            base: the folder that the index's paths count from, out of the agents' reach.
            scripted: whether a script made the index; then a mask that it made of an image that was prompted for counts as such.
        """
        rows = self.rows()
        images, hashes = {row["image"] for row in rows}, {row["sha256"] for row in rows}
        for record in index.test:
            derived_masks = [path for path in record.targets if not path.startswith("data/")]
            is_prompted = any(path.startswith(f"{PROMPTED}/") or _hash(base, path) in hashes for path in derived_masks)
            is_scripted_again = scripted and bool(derived_masks) and bool(set(record.files) & images)
            if ORIGIN in record.extra or is_prompted or is_scripted_again:
                return (
                    f"The mask of the test case {record.key} was prompted for in this run. Such masks teach and are no test truth: "
                    "leave the case out of the test part, or give it the mask of a person."
                )
        return ""

    def told(self, index: Index) -> tuple[str, ...]:
        """What card and report say of prompted masks."""
        rows = {row["image"]: row for row in self.rows()}
        training_rows = [rows[name] for record in index.train if (name := _labelled_image_of(record, rows))]
        if not training_rows:
            return ()
        segmenters, models = ({str(row[key]) for row in training_rows} for key in ("segmenter", "llm"))
        return (
            f"{len(training_rows)} of {len(index.train)} training masks were drawn by no person: {', '.join(sorted(models))} prompted "
            f"{', '.join(sorted(segmenters))} for them, as the user approved. No test case has such a mask.",
        )


def _labelled_image_of(record: Record, rows: dict[str, dict[str, Any]]) -> str:
    """The image of a record whose mask was prompted for; empty for another."""
    has_only_raw_masks = all(path.startswith("data/") for path in record.targets)
    return "" if has_only_raw_masks else next((path for path in record.files if path in rows), "")


def _hash(base: Path, path: str) -> str:
    return sha256(base, path) if is_file(base, path) else ""


def labelling_of(run: RunContext) -> Labelling | None:
    """That of a run whose user has approved it."""
    return Labelling(run, Path(run.options.label_with)) if run.options.label_with else None


def tools_of(labelling: Labelling | None, role: str) -> tuple[str, ...]:
    """The names of the further tools of a role."""
    return tuple(labelling.tools) if labelling is not None and role == DATA_ENGINEER.name else ()
