"""What serving costs beside the bare network: requests a second and their 95th percentile for 1, 4 and 16 clients, and memory.

    python benchmarks/serve.py --model RUN/model [--requests 400] [--side 64] [--clients 1 4 16]
    python benchmarks/serve.py --model RUN/model --memory 10000

The model must be a classifier of pictures. Every request is one PNG; each client sends the next one when it has its answer. `bare` is
the delivered network in one plain process, one picture after another, without anything of m3b but the reading of the picture. With
`--memory N`, N further requests of four clients follow, and the memory of the server and its model's process is printed ten times;
the exit code is 1 if it grows by more than 64 MiB after the first tenth, or if an answer was no 200.
"""

from __future__ import annotations

import argparse
import http.client
import io
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

MAX_GROWTH_MIB = 64.0
MEMORY_CLIENTS = 4
BOUNDARY = "benchmark"
BARE = """
import json, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import torch
from m3b.training.diagnosis.network import build_model
from m3b.training.preprocess import prepare_image
from m3b.training.stored_networks import load_networks

folder, image, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
config = json.loads((folder / "config.json").read_text())
plan = config["plan"]
models = [model.eval() for model in load_networks(folder, config, lambda: build_model(plan, with_loss=False))]
seconds = []
with torch.no_grad():
    for _ in range(count):
        began = time.perf_counter()
        batch = torch.from_numpy(prepare_image(image, plan)[None])
        for _view in config["views"]:
            for model in models:
                model(batch)["logits"]
        seconds.append(time.perf_counter() - began)
print(json.dumps(seconds[len(seconds) // 10:]))
"""


@contextmanager
def run_server(model: Path, queue: int) -> Iterator[tuple[int, int]]:
    """Serve the model with `m3b serve`; yield its port and process id."""
    command = [sys.executable, "-m", "m3b", "serve", f"model={model}", "--port", "0", "--queue", str(queue)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if match := re.search(r"serving .*:(\d+)/", line):
                    yield int(match[1]), process.pid
                    return
            raise SystemExit("m3b serve did not start")
        finally:
            process.terminate()


def send_requests(port: int, body: bytes, count: int) -> list[float]:
    """Send requests one after another on one connection; return the seconds of each."""
    seconds = []
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    for _ in range(count):
        began = time.perf_counter()
        connection.request("POST", "/v1/models/model/predict", body, headers)
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise SystemExit(f"an answer was {answer.status}")
        seconds.append(time.perf_counter() - began)
    connection.close()
    return seconds


def send_in_parallel(port: int, body: bytes, n_clients: int, count: int) -> tuple[float, list[float]]:
    """Return requests a second, and the seconds of each request."""
    began = time.perf_counter()
    with ThreadPoolExecutor(n_clients) as pool:
        parts = list(pool.map(lambda _: send_requests(port, body, count // n_clients), range(n_clients)))
    seconds = [value for part in parts for value in part]
    return len(seconds) / (time.perf_counter() - began), seconds


def measure_memory(pid: int) -> float:
    """Return the resident memory of a process and of all that it started, in MiB."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(status.parent.name))
    total, waiting = 0, [pid]
    while waiting:
        process = waiting.pop()
        waiting += children.get(process, [])
        try:
            total += int(Path(f"/proc/{process}/statm").read_text().split()[1])
        except OSError:
            continue
    return total * os.sysconf("SC_PAGE_SIZE") / 2**20


def measure_bare(model: Path, image: Path, count: int) -> list[float]:
    """Return the seconds of the bare network for each picture."""
    command = [sys.executable, "-c", BARE, str(model), str(image), str(count)]  # recipes are read from the folder
    output = subprocess.run(command, check=True, capture_output=True, text=True, cwd=model).stdout
    return [float(value) for value in output.strip().strip("[]").split(",")]


def format_row(name: str, rate: float, seconds: Sequence[float]) -> str:
    """Return a row of the table."""
    p95 = float(np.percentile(seconds, 95))
    return f"| {name} | {rate:.1f} | {1000 * statistics.median(seconds):.1f} | {1000 * p95:.1f} | {len(seconds)} |"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=lambda text: Path(text).resolve(), required=True)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--memory", type=int, default=0)
    options = parser.parse_args()
    pixels = np.clip(np.random.default_rng(0).normal(110, 30, (options.side, options.side)), 0, 255).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="film.png"\r\n\r\n'
    body = head.encode() + stream.getvalue() + f"\r\n--{BOUNDARY}--\r\n".encode()
    print("| who | requests/s | median, ms | 95th percentile, ms | n |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        image = Path(scratch) / "film.png"
        image.write_bytes(stream.getvalue())
        bare = measure_bare(options.model, image, options.requests)
    print(format_row("bare network", 1 / statistics.mean(bare), bare), flush=True)
    with run_server(options.model, max([MEMORY_CLIENTS, *options.clients])) as (port, pid):
        send_requests(port, body, 20)
        for n_clients in options.clients:
            rate, seconds = send_in_parallel(port, body, n_clients, options.requests)
            print(format_row(f"{n_clients} client{'s' * (n_clients > 1)}", rate, seconds), flush=True)
        if not options.memory:
            return 0
        courses = []
        for tenth in range(1, 11):
            send_in_parallel(port, body, MEMORY_CLIENTS, max(MEMORY_CLIENTS, options.memory // 10))
            courses.append(measure_memory(pid))
            print(f"memory after {tenth * options.memory // 10} requests: {courses[-1]:.0f} MiB", flush=True)
    growth = courses[-1] - courses[0]
    print(f"growth after the first tenth: {growth:+.1f} MiB")
    return int(growth > MAX_GROWTH_MIB)


if __name__ == "__main__":
    sys.exit(main())
