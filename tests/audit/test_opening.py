"""Images are opened by forked processes, and a file that ends its process costs no other one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
from PIL import Image

from warm.commands import run_python

SCRIPT = """
import json, os, sys, time
from pathlib import Path
import m3b.dataset.audit.opening as opening
from m3b.data.index import Index
from m3b.data.records import Record

work, parent, original, workers = Path(sys.argv[1]), os.getpid(), opening.probe_record, set()

def probe(record, scope, work):
    if record.key == sys.argv[2] and os.getpid() != parent:
        os._exit(9)
    return original(record, scope, work)

opening.probe_record = probe
index = Index(tuple(Record(f"{n}.png", ("a",), f"p{n}") for n in range(60)), (), ("a", "b"))
progress = []
executor, count = opening._start_executor()
executor.shutdown()
probes = opening.open_images(index, work, {"3.png"}, time.monotonic() + 60, lambda done, total: progress.append([done, total]))
print(json.dumps({"executor": type(executor).__name__, "keys": list(probes), "progress": progress,
                  "errors": [key for key, probe in probes.items() if probe.error]}))
"""


def run_script(work: Path, fatal: str) -> dict[str, object]:
    for number in range(60):
        pixels = np.random.default_rng(number).integers(0, 255, (20, 24), dtype=np.uint8)
        Image.fromarray(pixels).save(work / f"{number}.png")
    (work / "7.png").write_bytes(b"no picture")
    finished = run_python("-c", SCRIPT, work, fatal, cwd=work, check=True, server="m3b")
    answer = json.loads(finished.stdout)
    assert answer["keys"] == [f"{number}.png" for number in range(60) if number != 3]
    assert answer["errors"] == ["7.png"]
    return dict(answer)


def test_processes_open_every_image_once_in_the_order_of_the_index(tmp_path: Path) -> None:
    answer = run_script(tmp_path, "")
    has_cores = len(os.sched_getaffinity(0)) > 1
    assert answer["executor"] == ("ProcessPoolExecutor" if has_cores else "ThreadPoolExecutor")
    assert all(50 <= done < total == 59 for done, total in answer["progress"])  # type: ignore[attr-defined]


def test_a_file_that_ends_its_process_is_opened_here(tmp_path: Path) -> None:
    run_script(tmp_path, "33.png")
