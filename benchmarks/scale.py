"""Measure how the steps before training grow with the data: survey, index, audit, locking, plan and first training step.

    python benchmarks/scale.py images --cases 30000 --folder DIR [--stages survey index audit lock plan step] [--results FILE]
    python benchmarks/scale.py volumes --cases 2000 --folder DIR
    python benchmarks/scale.py runs --cases 60 --folder DIR --stages survey

Each set is measured with `--cases` and with a tenth of them. `images` are PNG files of 64 x 64 pixels in a folder a class, with
a CSV of patients and labels; `volumes` are NIfTI files with masks; `runs` are folders like those that `m3b run` leaves, with
many small tables. Every stage runs in a process of its own, and reads what the stages before it left in DIR. DIR is kept: a
second call generates nothing again, and measures the stages that it names.

The table has for each stage the wall time, the processor time with that of its children, the exponent of growth of the processor time
(1 is linear), the peak memory (anonymous pages, shared ones counted once, of the process with its children, sampled ten times
a second), the ratio of both peaks, and the bytes that it wrote. Starting Python and importing the libraries counts; `step`
ends after the first step of the first training.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import multiprocessing
import os
import resource
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

DATA_NAME = "scale"
SIDE, VOLUME_SHAPE = 64, (48, 48, 32)
SAMPLE_SECONDS = 0.1
CHUNK = 2_000
"""Cases that a process generates in one go."""
AUDIT_SECONDS = 120.0
"""The time that a run gives the audit to open images."""
REQUESTS = {
    "images": ("Tell opacity from clear on these films", "diagnosis"),
    "volumes": ("Segment the lesion on these volumes", "segmentation"),
    "runs": ("Tell opacity from clear on these films", "diagnosis"),
}


# --- generated sets -----------------------------------------------------------------------------------------------------


def write_png(path: Path, pixels: Any) -> None:
    """Write a grey picture (H, W) uint8 as PNG."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return len(content).to_bytes(4, "big") + kind + content + zlib.crc32(kind + content).to_bytes(4, "big")

    rows, columns = pixels.shape
    header = columns.to_bytes(4, "big") + rows.to_bytes(4, "big") + b"\x08\0\0\0\0"
    lines = b"".join(b"\0" + row.tobytes() for row in pixels)
    content = zlib.compress(lines, 1)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", content) + chunk(b"IEND", b""))


def class_of(case: int) -> str:
    """Return the class of a case: a third is opaque."""
    return "opacity" if case % 3 == 0 else "clear"


def write_images(root: Path, first: int, count: int) -> None:
    """Write the pictures of some cases: smooth structure that differs from case to case, noise, and a disc in opaque ones."""
    import numpy as np

    rows, columns = np.mgrid[:SIDE, :SIDE] / SIDE
    for case in range(first, first + count):
        rng = np.random.default_rng(case)
        waves = rng.normal(size=(6, 4))
        picture = sum(
            weight * np.cos(7 * (a * rows + b * columns) + phase) for a, b, phase, weight in waves.tolist()
        ) + rng.normal(scale=0.2, size=(SIDE, SIDE))
        if class_of(case) == "opacity":
            centre = rng.uniform(0.3, 0.7, 2)
            picture += 3 * (np.hypot(rows - centre[0], columns - centre[1]) < 0.15)
        pixels = np.clip(110 + 24 * picture, 0, 255).astype(np.uint8)
        write_png(root / "images" / class_of(case) / f"film_{case:07d}.png", pixels)


def write_volumes(root: Path, first: int, count: int) -> None:
    """Write volumes with a ball each, and their masks."""
    import nibabel
    import numpy as np

    grid = np.stack(np.meshgrid(*(np.arange(side) for side in VOLUME_SHAPE), indexing="ij"), -1)
    affine = np.diag([1.0, 1.0, 1.5, 1.0])
    for case in range(first, first + count):
        rng = np.random.default_rng(case)
        centre, radius = rng.uniform(0.35, 0.65, 3) * VOLUME_SHAPE, rng.uniform(4, 9)
        ball = np.linalg.norm((grid - centre) * (1, 1, 1.5), axis=-1) < radius
        coarse = np.kron(rng.normal(size=(6, 6, 4)), np.ones((8, 8, 8)))
        volume = 40 * coarse + rng.normal(scale=15, size=VOLUME_SHAPE) + 150 * ball
        for folder, array in (("imagesTr", volume.astype(np.int16)), ("labelsTr", ball.astype(np.uint8))):
            nibabel.save(nibabel.Nifti1Image(array, affine), root / folder / f"case_{case:05d}.nii.gz")


def write_runs(root: Path, first: int, count: int) -> None:
    """Write folders of finished runs: a journal, index files, scores, predictions, tables of losses, and pictures."""
    import numpy as np

    for run in range(first, first + count):
        rng = np.random.default_rng(run)
        folder = root / f"{RUN_NAMES[run % len(RUN_NAMES)]}{run // len(RUN_NAMES) or ''}"
        films = [f"film_{case:04d}" for case in range(run * 40, run * 40 + 40)]
        for name in ("locked/Datapath", "work/Logout/fold0", "work/Logout/fold1", "work/data/films", "report"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        for film in films:
            write_png(folder / "work/data/films" / f"{film}.png", rng.integers(0, 255, (SIDE, SIDE), dtype=np.uint8))
        for name in ("curves", "calibration", "confusion"):
            write_png(folder / "report" / f"{name}.png", rng.integers(0, 255, (SIDE, SIDE), dtype=np.uint8))
        records = [
            {"image_path": f"data/films/{film}.png", "labels": [class_of(case)], "patient": f"p{case // 2:03d}"}
            for case, film in enumerate(films)
        ]
        for name, part in (("train", records[:30]), ("test", records[30:])):
            (folder / f"locked/Datapath/{name}.json").write_text(json.dumps(part))
        scores = [
            {"case": case, "image": film, **{f"score_{k}": float(rng.random()) for k in range(10)}}
            for case, film in enumerate(films)
        ]
        (folder / "locked/scores.json").write_text(json.dumps(scores))
        # each kind of event has keys of its own
        events = [
            {"number": place, "at": 1000.0 + place, "kind": f"{folder.name}_{place % 20}"}
            | {
                f"{folder.name}_{place % 20}_{key}": int(rng.integers(0, 60)) if key < 2 else films[place % 40]
                for key in range(3)
            }
            for place in range(120)
        ]
        (folder / "journal.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
        for fold in range(2):
            with (folder / f"work/Logout/fold{fold}/log.csv").open("w") as file:
                writer = csv.writer(file)
                writer.writerow(["step", "epoch", "seconds", *(f"{folder.name}_loss_{k}" for k in range(6))])
                writer.writerows([step, step // 5, step * 3 + fold, *rng.integers(0, 99, 6)] for step in range(40))
        with (folder / "predictions.csv").open("w") as file:
            writer = csv.writer(file)
            writer.writerow(["case", "image", "patient", "truth", f"{folder.name}_clear", "fold"])
            writer.writerows(
                [case, record["image_path"], record["patient"], class_of(case), round(rng.random(), 3), case % 2]
                for case, record in enumerate(records)
            )


RUN_NAMES = ("knees", "lungs", "skin", "hips", "retina", "brain", "spine", "liver")


WRITERS: dict[str, Callable[[Path, int, int], None]] = {
    "images": write_images,
    "volumes": write_volumes,
    "runs": write_runs,
}
FOLDERS = {
    "images": ("images/clear", "images/opacity"),
    "volumes": ("imagesTr", "labelsTr"),
    "runs": (),
}


def generate(kind: str, count: int, root: Path) -> None:
    """Write a set of `count` cases, unless it is there."""
    done = root.parent / f"{root.name}.done"
    if done.exists():
        return
    for folder in ("", *FOLDERS[kind]):
        (root / folder).mkdir(parents=True, exist_ok=True)
    starts = range(0, count, CHUNK)
    with multiprocessing.get_context("spawn").Pool(min(os.cpu_count() or 1, 8)) as pool:
        pool.starmap(
            partial(WRITERS[kind], root), [(start, min(CHUNK, count - start)) for start in starts], chunksize=1
        )
    if kind == "images":
        with (root / "films.csv").open("w") as file:
            writer = csv.writer(file)
            writer.writerow(["film", "patient", "age", "finding"])
            for case in range(count):
                writer.writerow([f"film_{case:07d}.png", f"P{case // 2:06d}", 20 + case % 60, class_of(case)])
    done.touch()


# --- stages, each in a process of its own ----------------------------------------------------------------------------------


def _reader_job(kind: str, root: Path, work: Path) -> dict[str, Any]:
    request, task = REQUESTS[kind]
    return {"root": str(root), "place": str(work / "survey"), "request": request, "task": task}


def survey_set(kind: str, root: Path, work: Path) -> str:
    """Survey the folder and decide how it is read, as `m3b look` does."""
    from m3b.data.cards import card_for_folder
    from m3b.dataset.jobs import answer
    from m3b.run.decision import make_decision_job

    job = {**make_decision_job(REQUESTS[kind][0], card_for_folder(root), None), **_reader_job(kind, root, work)}
    reply = answer(job)
    (work / "decision.json").write_text(json.dumps(reply, ensure_ascii=False))
    if "error" in reply:
        return str(reply["error"])
    surveys = [json.loads(path.read_text()) for path in (work / "survey").glob("dataset-survey-*.json")]
    is_late = any(note["code"] == "time" for survey in surveys for note in survey["notes"])
    late = "; SURVEY RAN OUT OF TIME" if is_late else ""
    proposals = reply["outcome"].get("proposals") or [{"title": "no proposal"}]
    return f"{reply['outcome']['kind']}: {proposals[0]['title']}{late}"


def index_set(kind: str, root: Path, work: Path) -> str:
    """Execute the best manifest."""
    from m3b.dataset.jobs import answer

    manifest = json.loads((work / "decision.json").read_text())["outcome"]["proposals"][0]["manifest"]
    (work / "Datapath").mkdir(exist_ok=True)
    (work / "data").mkdir(exist_ok=True)
    if not (work / "data" / DATA_NAME).is_symlink():
        (work / "data" / DATA_NAME).symlink_to(root)
    job = {**_reader_job(kind, root, work), "do": "execute", "name": DATA_NAME, "work": str(work), "manifest": manifest}
    reply = answer(job)
    return str(reply.get("error") or f"{reply['train']:,} + {reply['test']:,} cases")


def audit_set(kind: str, root: Path, work: Path) -> str:
    """Audit the index within the time of a run."""
    from m3b.data.index import read_index
    from m3b.dataset.audit import audit_index

    audit = audit_index(read_index(work, REQUESTS[kind][1]), work, max_seconds=AUDIT_SECONDS)
    return f"opened {audit.opened:,} of {audit.cases:,}; {len(audit.findings)} findings"


def lock_set(kind: str, root: Path, work: Path) -> str:
    """Freeze and lock the index, and make the folder that training sees."""
    from m3b.agents.checks.index_lock import freeze_index, lock_index, serialize_training_index
    from m3b.data.index import LABELS, read_index
    from m3b.dataset.view import make_view, needed_files_of, shared_files

    task = REQUESTS[kind][1]
    locked, frozen, project = work / "locked", work / "frozen", work / "project"
    for folder in (locked, frozen, project):
        shutil.rmtree(folder, ignore_errors=True)
    locked.mkdir()
    freeze_index(work, frozen, {DATA_NAME: root}, task)
    index = read_index(frozen, task)
    needed = needed_files_of(index.training_images, frozen)
    shared = shared_files(needed, needed_files_of(index.test, frozen))
    lock_index(frozen, locked, task)
    for name, pieces in serialize_training_index(index).items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        with (project / name).open("wb") as file:
            file.writelines(pieces)
    shutil.copyfile(locked / LABELS, project / LABELS)
    counts = make_view(needed, locked, lambda path: project / path, link=True)
    return f"{counts.linked:,} linked, {counts.cloned + counts.copied:,} copied, {len(shared)} shared"


def plan_set(kind: str, root: Path, work: Path) -> str:
    """Plan the training in the folder of `lock`."""
    from m3b.resources import copy_template

    task, project = REQUESTS[kind][1], work / "project"
    copy_template(task, project)
    os.chdir(project)
    if task == "diagnosis":
        from m3b.training.diagnosis.plan import main
    else:
        from m3b.training.segmentation.plan import main
    main(["--minutes", "10", "--device", "cpu"])
    plan = json.loads(Path("plan.json").read_text())
    return f"size {plan.get('size') or plan.get('patch')}, batch {plan['batch']}"


def step_set(kind: str, root: Path, work: Path) -> str:
    """Train until the first step is done."""
    from m3b.training.loop import TrainingLoop

    os.chdir(work / "project")
    shutil.rmtree("Logout", ignore_errors=True)
    if REQUESTS[kind][1] == "diagnosis":
        from m3b.training.diagnosis.train import main
    else:
        from m3b.training.segmentation.train import main
    train_step = TrainingLoop.train_step

    def end_after_step(self: Any, batches: Any) -> None:
        train_step(self, batches)
        raise FirstStepDone

    TrainingLoop.train_step = end_after_step  # type: ignore[method-assign]
    try:
        return f"train.py ended with {main([])} before its first step"
    except FirstStepDone:
        return "one step"


class FirstStepDone(BaseException):
    """The first step of a training was made."""


STAGES: dict[str, Callable[[str, Path, Path], str]] = {
    "survey": survey_set,
    "index": index_set,
    "audit": audit_set,
    "lock": lock_set,
    "plan": plan_set,
    "step": step_set,
}


# --- measuring ---------------------------------------------------------------------------------------------------------------


def list_process_tree(top: int) -> list[int]:
    """Return a process and its descendants."""
    pids, at = [top], 0
    while at < len(pids):
        try:
            for task in os.listdir(f"/proc/{pids[at]}/task"):
                pids += map(int, Path(f"/proc/{pids[at]}/task/{task}/children").read_text().split())
        except OSError:
            pass
        at += 1
    return pids


def measure_memory(top: int) -> int:
    """Return the bytes of memory of a process and its descendants; pages that they share count once."""
    total = 0
    for pid in list_process_tree(top):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss_Anon:"))
    return total


def count_bytes(folder: Path) -> int:
    """Return the bytes of all files below a folder; hard links into the data count nothing."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            stat = os.lstat(os.path.join(parent, name))
            total += stat.st_size if stat.st_nlink == 1 else 0
    return total


def count_processor_seconds() -> float:
    """Return the processor time of all processes that were started and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure_stage(kind: str, stage: str, root: Path, work: Path) -> dict[str, Any]:
    """Run a stage in a process of its own, and return its seconds, peak memory and written bytes."""
    work.mkdir(parents=True, exist_ok=True)
    before, processor_before, start, peak = count_bytes(work), count_processor_seconds(), time.monotonic(), 0
    command = [sys.executable, __file__, kind, "--run-stage", stage, "--root", str(root), "--work", str(work)]
    with (work / f"{stage}.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        while process.poll() is None:
            peak = max(peak, measure_memory(process.pid))
            time.sleep(SAMPLE_SECONDS)
    seconds, processor_seconds = time.monotonic() - start, count_processor_seconds() - processor_before
    output = (work / f"{stage}.log").read_text(errors="replace").splitlines()
    answer = next((line.removeprefix("RESULT ") for line in output if line.startswith("RESULT ")), "")
    if process.returncode or not answer:
        answer = f"FAILED with {process.returncode}: {' '.join(output[-3:])[-300:]}"
    written = max(count_bytes(work) - before, 0)
    return {
        "stage": stage,
        "seconds": round(seconds, 2),
        "processor_seconds": round(processor_seconds, 2),
        "peak": peak,
        "written": written,
        "answer": answer,
    }


def format_table(kind: str, small: int, count: int, rows: dict[tuple[str, int], dict[str, Any]]) -> list[str]:
    """Return the lines of a Markdown table that compares `count` cases with `small`."""
    lines = [
        f"| {kind} | s, {small:,} | s, {count:,} | CPU s, {small:,} | CPU s, {count:,} | exponent | MiB, {small:,} | MiB, {count:,} "
        "| ratio | MB written | answer |",
        f"|{'---|' * 11}",
    ]
    for stage in STAGES:
        if (stage, small) not in rows or (stage, count) not in rows:
            continue
        pair = rows[stage, small], rows[stage, count]
        times = [row["processor_seconds"] for row in pair]
        exponent = math.log(times[1] / times[0]) / math.log(count / small)
        memory = [row["peak"] / 2**20 for row in pair]
        cells = [
            stage,
            *(f"{row['seconds']:.1f}" for row in pair),
            *(f"{value:.1f}" for value in times),
            f"{exponent:.2f}",
            *(f"{value:,.0f}" for value in memory),
            f"{memory[1] / max(memory[0], 1):.2f}",
            f"{pair[1]['written'] / 1e6:.1f}",
            pair[1]["answer"],
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def measure_set(kind: str, counts: Sequence[int], stages: Sequence[str], folder: Path, results: Path | None) -> None:
    """Generate and measure the sets of one kind, and print the table."""
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for count in counts:
        root, work = folder / f"{kind}-{count}", folder / f"{kind}-{count}.work"
        generate(kind, count, root)
        for stage in stages:
            row = measure_stage(kind, stage, root, work)
            rows[stage, count] = row
            print(
                f"{kind} {count:,} {stage}: {row['seconds']:.1f} s, CPU {row['processor_seconds']:.1f} s, "
                f"{row['peak'] / 2**20:,.0f} MiB, "
                f"{row['written'] / 1e6:.1f} MB written; {row['answer']}",
                flush=True,
            )
            if results:
                with results.open("a") as file:
                    file.write(json.dumps({"kind": kind, "cases": count, **row}) + "\n")
    if len(counts) == 2:
        print("\n".join(format_table(kind, counts[0], counts[1], rows)))


def main() -> None:
    """Measure a set, or run one stage in this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=WRITERS)
    parser.add_argument("--cases", type=int, default=3_000)
    parser.add_argument("--alone", action="store_true", help="without a tenth of the cases")
    parser.add_argument("--folder", type=Path, help="where the sets are generated and worked on; it is kept")
    parser.add_argument("--stages", nargs="+", default=list(STAGES), choices=STAGES)
    parser.add_argument("--results", type=Path, help="file of JSON lines to which every measurement is added")
    parser.add_argument("--run-stage", choices=STAGES, help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run_stage:
        if options.run_stage == "survey":  # one that an earlier call stored would be taken
            shutil.rmtree(options.work / "survey", ignore_errors=True)
        (options.work / "survey").mkdir(exist_ok=True)
        answer = STAGES[options.run_stage](options.kind, options.root, options.work)
        print(f"RESULT {answer}", flush=True)
        return
    if options.folder is None:
        parser.error("--folder names where the sets are generated")
    counts = [options.cases] if options.alone else [max(options.cases // 10, 1), options.cases]
    measure_set(options.kind, counts, options.stages, options.folder.resolve(), options.results)


if __name__ == "__main__":
    main()
