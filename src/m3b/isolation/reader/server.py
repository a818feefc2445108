"""The loop in the reader process: it receives a job, reports each file that it opens, and sends the output."""

from __future__ import annotations

import gc
import os
import sys
import threading
from typing import Any

from m3b.isolation.reader import protocol
from m3b.isolation.reader.remote_errors import error_to_json
from m3b.isolation.reader.worker_job import load_job_function
from m3b.isolation.untrusted.file_watch import FileWatch, watch_files
from m3b.isolation.user_secret import receive_mask_key


def main(incoming: int, outgoing: int) -> None:
    """Run jobs until the other side closes the pipe."""
    receiver = protocol.MessageReceiver(incoming)
    protocol.send_message(outgoing, {"ready": os.getpid()})
    while True:
        try:
            request = receiver.receive()
        except protocol.ConnectionClosed:
            return
        protocol.send_message(
            outgoing, {**_run_job(request, outgoing), "id": request["id"], "held": held_memory_bytes()}
        )


def _run_job(request: dict[str, Any], outgoing: int) -> dict[str, Any]:
    lock = threading.Lock()

    def send_event(event: str, value: object) -> None:
        with lock:
            protocol.send_message(outgoing, {event: value, "id": request["id"]})

    watch = FileWatch(
        lambda path: send_event("opening", path),
        lambda done, total: send_event("progress", [done, total]),
        request["broken"],
        request["alone"],
    )
    receive_mask_key(bytes.fromhex(request["mask_key"]))
    try:
        with watch_files(watch):
            function, input_type, output_type = load_job_function(request["name"])
            return {
                "answer": protocol.to_json(output_type, function(protocol.from_json(input_type, request["question"])))
            }
    except protocol.ConnectionClosed:
        sys.exit(0)
    except RecursionError:
        return {"error": error_to_json(RecursionError("nested too deeply"))}
    except Exception as error:  # noqa: BLE001 - decoders of a dozen formats raise any error; it is sent by name
        return {"error": error_to_json(error)}
    finally:
        gc.collect(0)


def held_memory_bytes() -> int:
    """Return the memory in bytes that this process holds and does not share."""
    with open("/proc/self/statm", encoding="ascii") as file:
        fields = file.read().split()
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")
