"""The loop inside the confined process: a question in, the name of each file that is opened out, then the answer."""

from __future__ import annotations

import gc
import os
import sys
import threading
from typing import Any

from m3b.reader import faults, wire
from m3b.reader.request import answering
from m3b.untrusted import current


def main(incoming: int, outgoing: int) -> None:
    """Serve until the other side closes its end."""
    receiver = wire.Inlet(incoming)
    wire.send(outgoing, {"ready": os.getpid()})
    while True:
        try:
            request = receiver.next()
        except wire.Closed:
            return
        wire.send(outgoing, {**_answer(request, outgoing), "id": request["id"], "held": held()})


def _answer(asked: dict[str, Any], outgoing: int) -> dict[str, Any]:
    lock = threading.Lock()

    def tell(what: str, found: object) -> None:
        with lock:
            wire.send(outgoing, {what: found, "id": asked["id"]})

    file_watch = current.Watch(
        lambda path: tell("opening", path),
        lambda done, total: tell("progress", [done, total]),
        asked["broken"],
        asked["alone"],
    )
    try:
        with current.watched(file_watch):
            function, input_type, output_type = answering(asked["name"])
            return {"answer": wire.dump(output_type, function(wire.load(input_type, asked["question"])))}
    except wire.Closed:
        sys.exit(0)
    except RecursionError:
        return {"error": faults.pack(RecursionError("nested too deeply"))}
    except Exception as error:  # noqa: BLE001 - decoders of a dozen formats raise what they like; it crosses by name
        return {"error": faults.pack(error)}
    finally:
        gc.collect(0)


def held() -> int:
    """Bytes of memory that this process holds by itself now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        fields = file.read().split()
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")
