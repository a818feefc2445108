"""The loop inside the confined process: a question in, the name of each file that is opened out, then the answer."""

from __future__ import annotations

import gc
import os
import sys
import threading
from typing import Any

from m3b.reader import faults, wire
from m3b.reader.request import load_job_function
from m3b.untrusted import current


def main(incoming: int, outgoing: int) -> None:
    """Serve until the other side closes its end."""
    receiver = wire.MessageReceiver(incoming)
    wire.send_message(outgoing, {"ready": os.getpid()})
    while True:
        try:
            request = receiver.receive()
        except wire.ConnectionClosed:
            return
        wire.send_message(outgoing, {**_run_job(request, outgoing), "id": request["id"], "held": held_memory_bytes()})


def _run_job(request: dict[str, Any], outgoing: int) -> dict[str, Any]:
    lock = threading.Lock()

    def send_event(event: str, value: object) -> None:
        with lock:
            wire.send_message(outgoing, {event: value, "id": request["id"]})

    file_watch = current.FileWatch(
        lambda path: send_event("opening", path),
        lambda done, total: send_event("progress", [done, total]),
        request["broken"],
        request["alone"],
    )
    try:
        with current.watch_files(file_watch):
            function, input_type, output_type = load_job_function(request["name"])
            return {"answer": wire.to_json(output_type, function(wire.from_json(input_type, request["question"])))}
    except wire.ConnectionClosed:
        sys.exit(0)
    except RecursionError:
        return {"error": faults.error_to_json(RecursionError("nested too deeply"))}
    except Exception as error:  # noqa: BLE001 - decoders of a dozen formats raise what they like; it crosses by name
        return {"error": faults.error_to_json(error)}
    finally:
        gc.collect(0)


def held_memory_bytes() -> int:
    """Bytes of memory that this process holds by itself now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        fields = file.read().split()
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")
