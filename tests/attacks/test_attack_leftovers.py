"""What a script could leave in `work/` that harms whoever comes after it: programs with rights, floods of files."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

from m3b.isolation.sandbox import Limits
from sandbox_kit import ATTEMPT

SET_ID = """
import os, shutil, stat
shutil.copy("/bin/true" if os.path.exists("/bin/true") else "/usr/bin/true", "shell")
def by(name, action):
    try: action()
    except OSError as error: print("stopped", name, error)
for bits in (0o4755, 0o2755, 0o6755):
    by("chmod", lambda: os.chmod("shell", bits))
    by("fchmod", lambda: os.fchmod(os.open("shell", os.O_RDONLY), bits))
    by("open", lambda: os.close(os.open(f"made{bits:o}", os.O_CREAT | os.O_WRONLY, bits)))
    by("mknod", lambda: os.mknod(f"node{bits:o}", stat.S_IFREG | bits))
    by("creat", lambda: call(85, f"creat{bits:o}".encode(), bits) if x86 else None)
    by("openat2", lambda: call(437, -100, f"how{bits:o}".encode(),
        (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, bits, 0), 24))
    by("nameless", lambda: os.link(f"/proc/self/fd/{os.open('.', os.O_TMPFILE | os.O_RDWR, bits)}", f"tmp{bits:o}",
        follow_symlinks=True))
by("tool", lambda: os.system("chmod u+s,g+s shell; install -m 6755 shell installed; cp -a shell copied"))
print("tried")
"""


def test_no_file_lends_its_owners_rights(confined: Any) -> None:
    end, output = confined.run(ATTEMPT + SET_ID)
    assert end.code == 0, output
    assert "tried" in output
    lending = [
        p.name for p in confined.work.rglob("*") if not p.is_symlink() and p.is_file() and p.stat().st_mode & 0o6000
    ]
    assert lending == []


def test_ordinary_modes_still_change(make_bench: Any) -> None:
    bench = make_bench("bubblewrap")
    end, output = bench.run(
        "import os; open('a', 'w').close(); os.chmod('a', 0o751); os.mkdir('d', 0o2700); open('b', 'x')"
    )
    assert end.code == 0, output
    assert stat.S_IMODE((bench.work / "a").stat().st_mode) == 0o751


FLOOD = """
import os
os.mkdir("many")
print("begun", flush=True)
number = 0
while True:
    os.mknod(f"many/{number}")
    number += 1
    if number % 50000 == 0:
        os.mkdir(f"many/d{number}")
"""


def test_a_flood_of_files_is_stopped(bench: Any) -> None:
    limits = Limits(wall_s=100, files=5_000)
    end, output = bench.run(FLOOD, limits)
    assert "begun" in output
    assert end.reason == "files", end
    assert end.code == 137


def test_many_files_within_the_limit(bench: Any) -> None:
    script = "import os\nfor n in range(3000): os.mknod(f'f{n}')\nprint('made')"
    end, output = bench.run(script, Limits(wall_s=60, files=5_000))
    assert (end.code, end.reason) == (0, "exit"), output
    assert len(list(Path(bench.work).glob("f*"))) == 3000
