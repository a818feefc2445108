"""m3b as a server of the Model Context Protocol: a chat client looks at data, builds models, and predicts with them."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import anyio
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from m3b import __version__
from m3b.data import phi
from m3b.errors import M3bError, UsageError
from m3b.serve.tools import ServerSettings, Tools

P = ParamSpec("P")
R = TypeVar("R")
INSTRUCTIONS = """m3b builds tested medical-imaging models from a request in plain words and a folder of images.
1. look_at_data says how the folder is read; mend it with a manifest if it is wrong.
2. start_run starts the build, which takes minutes to hours; poll_run until its status is not working.
3. get_result has the figures on locked test cases; predict applies the delivered model.
State figures with their interval and the number of cases, and never more certainty than `status` and `reason` do."""
POLL_S = 0.5
MAX_POLL_S = 60.0


def make_server(settings: ServerSettings) -> MCPServer[Any]:
    """Return the server with its tools; `run()` of it serves.

    Raises:
        UsageError: a folder does not exist.
    """
    for folder in settings.data:
        if not Path(folder).is_dir():
            raise UsageError(f"There is no folder {folder}.")
    server = MCPServer("m3b", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")
    tools = Tools(settings)
    for function in (
        tools.look_at_data, tools.start_run, tools.get_result, tools.cancel_run, tools.resume_run, tools.list_runs,
        tools.list_models,
    ):  # fmt: skip
        server.tool()(_with_plain_errors(function))

    @server.tool()
    async def poll_run(run: str, context: Context[Any, Any], wait_seconds: float = 20.0) -> dict[str, Any]:
        """Wait until a run ends, at most `wait_seconds` (up to 60), and return its status, stage, activity and progress."""
        check = _with_plain_errors(tools.check_progress)
        end = time.monotonic() + (min(max(wait_seconds, 0.0), MAX_POLL_S) if math.isfinite(wait_seconds) else 0.0)
        while True:
            progress = await anyio.to_thread.run_sync(check, run)
            if progress["status"] != "working" or time.monotonic() >= end:
                return progress
            await context.report_progress(progress["share"] or 0.0, 1.0, progress["now"])
            await anyio.sleep(POLL_S)

    @server.tool()
    def predict(
        model: str, images: list[str | list[Any] | dict[str, Any]], saliency: bool = False
    ) -> list[str | Image]:
        """Predict images (files or folders) with a delivered model, named by its folder, its run's id, or `last`.

        A case of several images is an object channel -> image, or a list of slices or views; covariates go beside `image`:
        {"image": ..., "age": 61}.
        Returns one JSON object an image: probabilities, prediction, masks, boxes, volumes in ml, findings, whether the image is
        unlike the training images, and where files were written; and pictures of them if the user allows that.
        """
        entries, pictures = _with_plain_errors(tools.predict)(model, images, saliency)
        text = json.dumps(entries, ensure_ascii=False, indent=1)
        return [text, *(Image(data=picture, format="png") for picture in pictures)]

    return server


def _with_plain_errors(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function whose errors the client reads in m3b's words."""

    @wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> R:
        try:
            return function(*arguments, **named)
        except (M3bError, OSError) as error:
            raise ToolError(phi.scrub(str(error))) from error

    return call
