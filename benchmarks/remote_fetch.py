"""Fetch many small objects from an S3 server on loopback: by m3b's mirror and by `s3fs.get(recursive=True)`.

python benchmarks/remote_fetch.py [--objects 5000] [--bytes 8192] [--turns 3]

The server is moto in a process of its own. Each turn fetches everything by both, in changing order, into empty folders; then
the mirror once more, which fetches nothing. Prints a JSON line a turn with seconds by the clock and of this process.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

BUCKET = "measured"
SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--objects", type=int, default=5000)
    parser.add_argument("--bytes", type=int, default=8192)
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert server.stdout is not None
    os.environ.update(
        AWS_ENDPOINT_URL=f"http://127.0.0.1:{server.stdout.readline().strip()}", AWS_ACCESS_KEY_ID="measured",
        AWS_SECRET_ACCESS_KEY="measured", AWS_DEFAULT_REGION="us-east-1", AWS_EC2_METADATA_DISABLED="true",
    )  # fmt: skip
    try:
        upload(arguments.objects, arguments.bytes)
        for turn in range(arguments.turns):
            print(json.dumps(measure_turn(turn)), flush=True)
    finally:
        server.kill()


def upload(n_objects: int, n_bytes: int) -> None:
    from s3fs import S3FileSystem

    filesystem = S3FileSystem()
    filesystem.mkdir(BUCKET)
    filesystem.pipe(
        {f"{BUCKET}/set/p{number // 10:04d}/{number:05d}.bin": os.urandom(n_bytes) for number in range(n_objects)}
    )


def measure_turn(turn: int) -> dict[str, object]:
    from s3fs import S3FileSystem

    from m3b.remote.mirror import mirror

    folder = Path(tempfile.mkdtemp(prefix="remote_fetch_"))
    url = f"s3://{BUCKET}/set"

    def fetch_plainly() -> object:
        return S3FileSystem(skip_instance_cache=True).get(f"{BUCKET}/set/", f"{folder}/plain/", recursive=True)

    actions: list[tuple[str, Callable[[], object]]] = [
        ("mirror", lambda: mirror(url, store=folder / "store")),
        ("plain", fetch_plainly),
    ]
    row: dict[str, object] = {"turn": turn, "load": round(os.getloadavg()[0], 1)}
    for name, action in [*(actions if turn % 2 == 0 else reversed(actions)), ("mirror again", actions[0][1])]:
        wall, own = time.perf_counter(), time.process_time()
        action()
        row[name] = {"wall_s": round(time.perf_counter() - wall, 2), "cpu_s": round(time.process_time() - own, 2)}
    plain = sorted(path.read_bytes() for path in (folder / "plain").rglob("*.bin"))
    mirrored = sorted(path.read_bytes() for path in mirror(url, store=folder / "store").path.rglob("*.bin"))
    assert plain == mirrored
    row["objects"] = len(plain)
    shutil.rmtree(folder)
    return row


if __name__ == "__main__":
    main()
