"""Masks for images without one, made by the Data Engineer prompting a segmenter, if the user has approved it
(`label_with`).

Each image is one episode of `m3b.interactive`, kept in the run folder: journal, a picture of every turn, the mask. The
masks are copied to `work/` for training. A register out of the agents' reach lists them, so that none is ever used as
test truth, and model card and report state their number.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from m3b.agents.roles import DATA_ENGINEER
from m3b.data.index import Index
from m3b.data.kinds.segmentation import BY_PROMPTS, ORIGIN
from m3b.data.records import Record
from m3b.dataset.manifest.execute import PROMPTED_FOLDER
from m3b.errors import DataError, ToolError, UsageError
from m3b.isolation.untrusted import hash_file, is_file, write_atomic
from m3b.writing import write_text_atomically

if TYPE_CHECKING:
    from collections.abc import Callable

    from m3b.agents.budget import Budget
    from m3b.interactive.episode import SegmentationResult
    from m3b.interactive.segmenter import Segmenter
    from m3b.llm import LLM
    from m3b.run.folder import RunFolder
    from m3b.tools.user_tools import BoundTool

LABELLING_FOLDER, REGISTER_FILE = "labelling", "masks.json"
MAX_IMAGES_PER_CALL = 50
"""Maximum number of images in one call of the tool."""
MIN_EXPECTED_IOU = 0.5
"""Minimum IoU, as expected by the segmenter, for a mask to be used for training."""
LABELLING_INSTRUCTIONS = (
    "The user has approved that images without a mask are labelled: `label_images` prompts a segmenter for them. Their masks "
    "teach and never test, so the test cases need masks of their own. Label only what the request asks for, call the target "
    "like its class, and hand the manifest over as usual: m3b adds the masks to the index that it makes."
)


class MaskLabelling:
    """The masks of one run that were made by prompting a segmenter.

    Args:
        segmenter_folder: a folder that `m3b.interactive.open_segmenter` opens.
        budget: the budget that the requests are counted on.
        get_llm: returns the model that looks at the images.
        resolve_path: returns the file of a path that an agent names.
        is_cancelled: polled while waiting for a model.
    """

    def __init__(
        self,
        run: RunFolder,
        segmenter_folder: Path,
        budget: Budget,
        *,
        get_llm: Callable[[], LLM],
        resolve_path: Callable[[str], Path],
        is_cancelled: Callable[[], bool],
    ) -> None:
        self.segmenter_folder, self.budget = segmenter_folder, budget
        self._get_llm, self._resolve_path, self._is_cancelled = get_llm, resolve_path, is_cancelled
        self.work, self.folder = run.work, run.path / LABELLING_FOLDER
        self._segmenter: Segmenter | None = None

    @property
    def tools(self) -> dict[str, BoundTool]:
        """The additional tools of the Data Engineer."""
        from m3b.tools.user_tools import bind_user_tools

        def label_images(images: list[str], target: str) -> str:
            """Mark a target in images that have no mask: a segmenter is prompted, its answer looked at and corrected.
            The user has approved it. These masks are for training alone.

            Args:
                images: paths of pictures or volumes without a mask, as an index names them (data/NAME/...), at most 50
                    a call.
                target: what to mark, in the words of its class.
            """
            return self.label_all(images, target)

        return bind_user_tools([label_images])

    def label_all(self, images: Sequence[str], target: str) -> str:
        """Run an episode on each image in turn; return one line on the result of each.

        Raises:
            ToolError: no images or too many, an invalid path, a model without vision, a segmenter that cannot be
                opened.
        """
        if not images or len(images) > MAX_IMAGES_PER_CALL:
            raise ToolError(f"label_images: {len(images)} images; give 1 to {MAX_IMAGES_PER_CALL} a call.")
        if not target.strip():
            raise ToolError("label_images: the target is empty; name the class that is to be marked.")
        files = {image: self._resolve_image(image) for image in images}
        labelled = {(row["image"], row["target"]) for row in self.read_register()}
        lines = []
        for image, file in files.items():
            if (image, target) in labelled:
                lines.append(f"{image}: labelled before")
                continue
            self.budget.check_limits()
            lines.append(f"{image}: {self._label_image(image, file, target)}")
        return "\n".join(lines)

    def _resolve_image(self, image: str) -> Path:
        file = self._resolve_path(image)
        if not image.startswith("data/") or not file.exists():
            raise ToolError(f"label_images: there is no image {image}; name images as an index does (data/NAME/...).")
        return file

    def _label_image(self, image: str, file: Path, target: str) -> str:
        """Run one episode, store its mask, and return what came of it."""
        rows = self.read_register()
        number = len(list(self.folder.glob("[0-9]*"))) + 1 if self.folder.is_dir() else 1
        segmentation = self._run_episode(file, target, self.folder / f"{number:05d}")
        self.budget.record_usage(segmentation.usage)
        if segmentation.mask_file is None or not segmentation.mask.any():
            return f"no mask ({segmentation.status}{': ' + segmentation.reason if segmentation.reason else ''})"
        if segmentation.score < MIN_EXPECTED_IOU:
            return f"no mask: the best has an expected IoU of {segmentation.score:.2f}; at least {MIN_EXPECTED_IOU:g} is required"
        name = f"{PROMPTED_FOLDER}/{number:05d}{''.join(segmentation.mask_file.suffixes)}"
        content = segmentation.mask_file.read_bytes()
        write_atomic(self.work, name, content)
        row = {
            "image": image, "target": target, "file": name, "sha256": hashlib.sha256(content).hexdigest(),
            "segmenter": segmentation.segmenter,
            "llm": segmentation.llm, "expected_iou": round(segmentation.score, 4), "turns": len(segmentation.turns),
            "status": segmentation.status,
        }  # fmt: skip
        self._save_register([*rows, row])
        return (
            f"mask of {segmentation.mask.mean():.1%} of the image, expected IoU {segmentation.score:.2f}, "
            f"{len(segmentation.turns)} turns"
        )

    def _run_episode(self, file: Path, target: str, out: Path) -> SegmentationResult:
        from m3b.interactive import open_segmenter, segment

        try:
            self._segmenter = self._segmenter or open_segmenter(self.segmenter_folder)
            return segment(
                file, target, llm=self._get_llm(), segmenter=self._segmenter, out=out,
                cancelled=self._is_cancelled,
            )  # fmt: skip
        except (UsageError, DataError) as error:
            raise ToolError(f"label_images: {error}") from error

    def read_register(self) -> list[dict[str, Any]]:
        """Return the register: image, target, file below `work/`, and how each mask was made."""
        file = self.folder / REGISTER_FILE
        register: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []
        return register

    def _save_register(self, rows: Sequence[dict[str, Any]]) -> None:
        write_text_atomically(self.folder / REGISTER_FILE, json.dumps(rows, indent=1, ensure_ascii=False))
        mask_list = [{key: row[key] for key in ("image", "target", "file")} for row in rows]
        write_atomic(self.work, f"{PROMPTED_FOLDER}/masks.json", json.dumps(mask_list, indent=1).encode())

    def restore_mask_list(self) -> None:
        """Write the list of masks in `work/` again from the register, since scripts may have changed it."""
        if rows := self.read_register():
            self._save_register(rows)

    def find_prompted_test_mask(self, index: Index, root: Path, *, is_scripted: bool) -> str:
        """Return the problem if a test case has a prompted mask as truth; else ''.

        Args:
            root: base folder of the paths in the index, out of the agents' reach.
            is_scripted: whether a script made the index; any mask that it made of a labelled image counts as prompted.
        """
        rows = self.read_register()
        images, hashes = {row["image"] for row in rows}, {row["sha256"] for row in rows}
        for record in index.test:
            derived_masks = [path for path in record.targets if not path.startswith("data/")]
            is_prompted = any(
                path.startswith(f"{PROMPTED_FOLDER}/") or _hash_if_file(root, path) in hashes for path in derived_masks
            )
            is_scripted_again = is_scripted and bool(derived_masks) and bool(set(record.files) & images)
            if record.extra.get(ORIGIN) == BY_PROMPTS or is_prompted or is_scripted_again:
                return (
                    f"The mask of the test case {record.key} was prompted for in this run. Such masks teach and are no test truth: "
                    "leave the case out of the test part, or give it the mask of a person."
                )
        return ""

    def describe_masks(self, index: Index) -> tuple[str, ...]:
        """Return the sentences on prompted masks for model card and report."""
        rows = {row["image"]: row for row in self.read_register()}
        training_rows = [rows[name] for record in index.train if (name := _labelled_image_of(record, rows))]
        if not training_rows:
            return ()
        segmenters, models = ({str(row[key]) for row in training_rows} for key in ("segmenter", "llm"))
        return (
            f"{len(training_rows)} of {len(index.train)} training masks were drawn by no person: {', '.join(sorted(models))} prompted "
            f"{', '.join(sorted(segmenters))} for them, as the user approved. No test case has such a mask.",
        )


def _labelled_image_of(record: Record, rows: dict[str, dict[str, Any]]) -> str:
    """Return the image of a record whose mask was prompted; '' for other records."""
    has_only_raw_masks = all(path.startswith("data/") for path in record.targets)
    return "" if has_only_raw_masks else next((path for path in record.files if path in rows), "")


def _hash_if_file(root: Path, path: str) -> str:
    return hash_file(root, path) if is_file(root, path) else ""


def extra_tool_names_of(labelling: MaskLabelling | None, role: str) -> tuple[str, ...]:
    """Return the names of the additional tools of a role."""
    return tuple(labelling.tools) if labelling is not None and role == DATA_ENGINEER.name else ()
