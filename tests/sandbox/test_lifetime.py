"""How commands end: codes, limits, and that no process is left behind whoever dies first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from m3b.isolation.sandbox import Limits

DAEMON = """
import os, subprocess, sys, time
subprocess.Popen(["setsid", "sleep", "1000.MARK"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "2000.MARK"])
    os._exit(0)
time.sleep(0.3)
"""


def daemons() -> tuple[str, str]:
    mark = str(uuid.uuid4().int)[:12]
    return DAEMON.replace("MARK", mark), f"000.{mark}"


def wait_for(condition: Any, seconds: float = 120) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return bool(condition())


def test_exit_codes_and_output(bench: Any) -> None:
    process = bench.start("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    end = process.wait(600)
    assert end is not None
    assert (end.code, end.reason) == (3, "exit")
    assert end.wall_s > 0
    assert process.poll() == end == process.stop() == process.wait(None)
    assert set(process.output.read_text().split()) == {"out", "err"}


def test_signals_and_missing_programs_answer_as_in_a_shell(bench: Any) -> None:
    killed = bench.command(["bash", "-c", "kill -TERM $$"]).wait(600)
    missing = bench.command(["no-such-program"]).wait(600)
    assert (killed.code, killed.reason) == (143, "exit")
    assert (missing.code, missing.reason) == (127, "exit")
    assert "command not found: no-such-program" in bench.output.read_text()


def test_pipes_break_as_in_a_shell_and_variables_arrive(bench: Any) -> None:
    process = bench.command(["bash", "-c", "yes | head -1; echo ${PIPESTATUS[0]} $GIVEN"], env={"GIVEN": "value"})
    assert process.wait(600).code == 0
    assert bench.output.read_text() == "y\n141 value\n"


def test_output_is_live_and_waiting_can_end_early(bench: Any) -> None:
    process = bench.start("import time; print('begun'); time.sleep(60)")
    assert wait_for(lambda: "begun" in bench.output.read_text())
    assert process.poll() is None
    assert process.wait(0.1) is None
    assert process.stop().reason == "stopped"


def test_stop_from_another_thread_wakes_a_waiter(bench: Any) -> None:
    process = bench.start("import time; time.sleep(60)")
    timer = threading.Timer(0.5, process.stop)
    timer.start()
    end = process.wait(30)
    timer.join()
    assert end is not None
    assert (end.code, end.reason) == (137, "stopped")


@pytest.mark.parametrize("how", ["exit", "wall_time", "stopped"])
def test_daemons_go_with_the_command(bench: Any, how: str) -> None:
    script, mark = daemons()
    wait_code = "" if how == "exit" else "time.sleep(60)"
    process = bench.start(script + wait_code, Limits(wall_s=1.0 if how == "wall_time" else 60))
    if how != "exit":
        assert wait_for(lambda: len(bench.survivors(mark)) >= 2, 5)
    end = process.stop() if how == "stopped" else process.wait(30)
    assert end is not None
    assert end.reason == how
    assert bench.survivors(mark) == []


@pytest.mark.parametrize("victim", ["supervisor", "reaper"])
def test_daemons_go_when_a_guard_is_killed(bench: Any, victim: str) -> None:
    script, mark = daemons()
    process = bench.start(script + "time.sleep(60)")
    assert wait_for(lambda: len(bench.survivors(mark)) >= 2)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(process.pid if victim == "supervisor" else int(children[0]), signal.SIGKILL)
    end = process.wait(30)
    assert end is not None
    assert end.reason == "lost"
    assert bench.survivors(mark) == []


PARENT = """
import sys, time
from pathlib import Path
from m3b.isolation.sandbox import Mounts, choose_sandbox
name, root, script = sys.argv[1:]
work = Path(root) / "work"
process = choose_sandbox(name).start([sys.executable, "-c", script], cwd=work, mounts=Mounts(write=(work,)),
                             output=Path(root) / "output.txt")
print("started", flush=True)
time.sleep(60)
"""


def test_daemons_go_when_the_caller_is_killed(bench: Any) -> None:
    script, mark = daemons()
    command = [sys.executable, "-c", PARENT, bench.sandbox.name, str(bench.root), script + "time.sleep(60)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": source()}) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"started\n"
        assert wait_for(lambda: len([p for p in bench.survivors(mark) if p != parent.pid]) >= 2)
        parent.kill()
    assert wait_for(lambda: bench.survivors(mark) == [])
    assert wait_for(lambda: bench.survivors(str(bench.root)) == [])


def source() -> str:
    import m3b.isolation.sandbox

    return str(Path(m3b.isolation.sandbox.__file__).parents[2])


def test_a_forgotten_process_is_ended(bench: Any) -> None:
    script, mark = daemons()
    process = bench.start(script + "time.sleep(60)")
    assert wait_for(lambda: len(bench.survivors(mark)) >= 2)
    supervisor = process._supervisor
    del process
    supervisor.wait(30)
    assert bench.survivors(mark) == []


@pytest.mark.parametrize("daemons", [False, True])
def test_fork_bomb(bench: Any, daemons: bool) -> None:
    mark = str(uuid.uuid4().int)[:12]
    script = f"""
import os, time
mark = "{mark}"
while True:
    try:
        if os.fork() == 0 and {daemons}: os.setsid()
    except OSError: time.sleep(0.01)
"""
    end, _ = bench.run(script, Limits(processes=40, wall_s=300))
    assert end.reason == "processes"
    assert bench.survivors(mark) == []


@pytest.mark.parametrize("kind", ["one process", "workers", "memfd"])
def test_memory_hog(confined: Any, kind: str) -> None:
    script = {
        "one process": "import time; held = bytearray(700 << 20); time.sleep(300)",
        "workers": "import os, time; [os.fork() for _ in range(2)]; held = bytearray(150 << 20); time.sleep(300)",
        "memfd": """
import os, time
f = os.memfd_create("x")
for _ in range(500): os.write(f, bytes(1 << 20))
time.sleep(300)""",
    }[kind]
    end, output = confined.run(script, Limits(memory_mib=300, wall_s=300))
    assert end.reason == "memory", output


def test_forked_workers_share_their_pages_in_the_count(confined: Any) -> None:
    script = "import os, time; held = bytearray(150 << 20); [os.fork() for _ in range(2)]; time.sleep(1.5)"
    end, output = confined.run(script, Limits(memory_mib=300, wall_s=300))
    assert end.reason == "exit", output


@pytest.mark.parametrize("place", ["named", "unlinked", "tmp"])
def test_disk_flood(confined: Any, place: str) -> None:
    path = "os.environ['TMPDIR'] + '/flood'" if place == "tmp" else "'flood'"
    script = f"""
import os, time
f = open({path}, "wb")
if {place == "unlinked"}: os.unlink("flood")
for _ in range(1000):
    f.write(os.urandom(1 << 18)); f.flush()
    time.sleep(0.002)
time.sleep(300)
"""
    end, output = confined.run(script, Limits(disk_mib=20, wall_s=300))
    assert end.reason == "disk", output


def test_one_large_file_is_refused_to_the_script(bench: Any) -> None:
    end, output = bench.run("open('large', 'wb').write(bytes(8 << 20))", Limits(file_mib=4, wall_s=300))
    assert end.reason == "exit"
    assert end.code != 0, output
    assert (bench.work / "large").stat().st_size <= 4 << 20


def test_output_flood_keeps_head_and_tail(confined: Any) -> None:
    script = """
import sys
print("FIRST")
line = "x" * 99 + "\\n"
for _ in range(3000): sys.stdout.write(line * 1000)
print("LAST")
"""
    end, output = confined.run(script, Limits(output_kib=64, wall_s=60))
    assert end.code == 0
    assert output.startswith("FIRST")
    assert output.endswith("LAST\n")
    assert "bytes of output left out" in output
    assert len(output) < 65 * 1024


def test_wall_time_against_a_busy_command(bench: Any) -> None:
    end, _ = bench.run("import signal\nsignal.signal(15, signal.SIG_IGN)\nwhile True: pass", Limits(wall_s=0.5))
    assert (end.code, end.reason) == (137, "wall_time")
    assert end.wall_s >= 0.5


def test_many_at_once(confined: Any) -> None:
    processes = []
    for n in range(4):
        processes.append(confined.command(["bash", "-c", f"sleep 0.3; exit {n}"]))
    assert [p.wait(600).code for p in processes] == [0, 1, 2, 3]


LOADER = """
import torch
from torch.utils.data import DataLoader, TensorDataset
if __name__ == "__main__":
    loader = DataLoader(TensorDataset(torch.arange(64.0)), batch_size=8, num_workers=2)
    print("SUM", sum(float(batch.sum()) for (batch,) in loader))
"""


def test_data_loader_workers(confined: Any) -> None:
    pytest.importorskip("torch")
    (confined.work / "train.py").write_text(LOADER)
    end = confined.command([sys.executable, "train.py"], limits=Limits(wall_s=600)).wait(600)
    assert end.code == 0, confined.output.read_text()
    assert "SUM 2016.0" in confined.output.read_text()
