"""The toolbox: runs the tool calls of a model and returns their results as text."""

from __future__ import annotations

import difflib
import errno
import inspect
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from m3b.data.phi import Phi
from m3b.dataset.jobs import MANIFEST_PATH
from m3b.engines import ClusterScripts
from m3b.errors import ToolError
from m3b.isolation.reader import Reader
from m3b.isolation.sandbox import Limits, Mounts, Sandbox
from m3b.isolation.untrusted import UnsafePathError, read_bytes
from m3b.messages import ToolCall, ToolSpec
from m3b.tools import schema
from m3b.tools.context import ToolContext, ToolResult
from m3b.tools.files import copy_files, edit_files, list_files, write_files
from m3b.tools.jobs import RESULT_LOGS, JobManager, LogStore, ScriptJob
from m3b.tools.paths import Roots
from m3b.tools.preview_tools import preview_dirs, preview_files, read_files
from m3b.tools.script import run_script
from m3b.tools.text import clip

TOOLS: dict[str, Callable[..., ToolResult]] = {
    tool.__name__: tool
    for tool in (
        list_files,
        read_files,
        copy_files,
        write_files,
        edit_files,
        run_script,
        preview_dirs,
        preview_files,
    )
}
"""The eight tools, in the order in which models see them."""

REPEATABLE = frozenset({"list_files", "read_files", "copy_files", "write_files", "preview_dirs", "preview_files"})
"""Idempotent tools: a call that a crash interrupted is repeated."""

HAND_OVER_REASON = "the work was handed over, and nothing may run on while it is checked"

_SELF_LIMITING_TOOLS = ("read_files", "run_script")
"""Tools that limit their own results: one returns pages, the other has its whole output in a file already."""


MAX_MANIFEST_BYTES = 2**20


class _MalformedCall(ToolError):
    """A tool call with an unknown tool or invalid arguments; nothing was run."""


def _never() -> bool:
    return False


class Toolbox:
    """The tools of one run, bound to its folders and its sandbox.

    Args:
        roots: the folders that paths may lead to.
        sandbox: confines scripts.
        limits: resource limits of one script.
        mounts_read: read-only folders that scripts may read.
        phi: `mask` hides personal data in previews, `allow` shows it.
        approve: called with every command before it runs; false refuses the command.
        on_output: called with a job's number and its latest output while waiting for it, at most twice a second.
        is_cancelled: called while waiting; true stops the script that is waited for.
        max_result_chars: longer results are cut in the middle; the full text is kept in a file that the agent can read.
        env: environment variables for scripts, in addition to those of the sandbox.
        logs: folder for the output of scripts and for long results, out of the scripts' reach; copies for agents go
            to `Logout/` of the working folder. None keeps them in a temporary folder until `close`.
        user_tools: further tools by name, from `bind_user_tools`.
        cluster: starts scripts as cluster jobs; None starts them on this machine.
    """

    def __init__(
        self,
        roots: Roots,
        *,
        sandbox: Sandbox,
        limits: Limits | None = None,
        mounts_read: Sequence[Path] = (),
        phi: Phi = "mask",
        approve: Callable[[str], bool] | None = None,
        on_output: Callable[[int, str], None] | None = None,
        is_cancelled: Callable[[], bool] = _never,
        max_result_chars: int = 8000,
        env: Mapping[str, str] | None = None,
        logs: Path | None = None,
        user_tools: Mapping[str, Callable[..., ToolResult]] = MappingProxyType({}),
        cluster: ClusterScripts | None = None,
    ) -> None:
        self.explain_manifest: Callable[[bytes], str] | None = None
        """Returns what a manifest gives; its answer follows the result of the call that wrote one."""
        self._work = roots.work
        self.tools = {**TOOLS, **user_tools}
        run_logs = LogStore(roots, logs)
        jobs = JobManager(roots, sandbox, limits or Limits(), mounts_read, env or {}, run_logs, cluster)
        visible_folders = tuple(path for path in (roots.work, *roots.read.values()) if path.exists())
        reader = Reader(sandbox, Mounts(read=visible_folders), is_cancelled=is_cancelled)
        self.context = ToolContext(
            roots, jobs, run_logs, phi, approve, on_output, is_cancelled, max_result_chars, reader
        )

    @property
    def jobs(self) -> list[ScriptJob]:
        """All scripts that were started, including those that have ended."""
        return self.context.jobs.all_jobs

    def tool_specs(self, names: Sequence[str]) -> tuple[ToolSpec, ...]:
        """Return the specifications of the named tools, always in the same order and byte for byte the same.

        Raises:
            ToolError: there is no tool of that name.
        """
        for name in names:
            if name not in self.tools:
                raise ToolError(f"There is no tool {name!r}. Tools: {', '.join(self.tools)}.")
        return tuple(schema.make_tool_spec(tool) for name, tool in self.tools.items() if name in names)

    def call(self, call: ToolCall, allowed: Sequence[str]) -> ToolResult:
        """Run one call. Errors of the model and of the file system are returned as results that say what to do.

        Bytes of file names that are not UTF-8 are escaped in the result.

        Raises:
            SandboxError: the sandbox did not start, which no agent can fix.
        """
        manifest = self._read_manifest()
        result = self._answer(call, allowed)
        written = self._read_manifest()
        if self.explain_manifest is not None and written and written != manifest:
            result = replace(result, text=f"{result.text}\n{self.explain_manifest(written)}")
        text = result.text.encode("utf-8", "backslashreplace").decode()
        return result if text == result.text else replace(result, text=text)

    def _read_manifest(self) -> bytes:
        """Return the manifest that was handed over so far; empty if there is none, or nobody explains it."""
        if self.explain_manifest is None:
            return b""
        try:
            return read_bytes(self._work, MANIFEST_PATH, MAX_MANIFEST_BYTES)
        except (OSError, UnsafePathError):
            return b""

    def _answer(self, call: ToolCall, allowed: Sequence[str]) -> ToolResult:
        try:
            result = self._dispatch(call, allowed)
        except _MalformedCall as error:
            return ToolResult(clip(str(error), self.context.max_result_chars), True, {"malformed": True})
        except ToolError as error:
            return ToolResult(clip(str(error), self.context.max_result_chars), is_error=True)
        except OSError as error:
            return ToolResult(self._describe_os_error(error), is_error=True)
        except MemoryError:
            return ToolResult(f"{call.name}: not enough memory. Look at less at a time.", is_error=True)
        return result if call.name in _SELF_LIMITING_TOOLS else self._limit_length(result)

    def continue_command(self, command: str, answered_jobs: Collection[int]) -> bool:
        """Let the next call of a command go on with its cluster job: see `JobManager.continue_command`."""
        return self.context.jobs.continue_command(command, answered_jobs)

    def reopen_jobs(self, commands: Mapping[int, str]) -> set[int]:
        """Go on with cluster jobs that an earlier process of m3b started.

        Args:
            commands: job number -> command.

        Returns:
            The numbers of the jobs that there are.
        """
        return {number for number, command in commands.items() if self.context.jobs.reopen_job(number, command)}

    def record_lost_jobs(self, continuations: Mapping[int, str]) -> None:
        """Record scripts that ended with an earlier process of m3b.

        Args:
            continuations: job number -> advice on how to continue; it is part of the error for a call with that number.
        """
        self.context.jobs.lost_jobs = dict(continuations)

    def stop_running_scripts(self) -> list[str]:
        """Stop all running scripts before an artifact is checked; return one message for each stopped script.

        This keeps scripts from changing the artifact while it is checked. New scripts can be started afterwards.
        """
        return [
            f"Job {job.number} (`{' '.join(job.command.split())[:80]}`) still ran at the hand-over and was stopped: "
            "nothing may run while the work is checked. Start it again if you need its output."
            for job in self.context.jobs.stop_running(HAND_OVER_REASON)
        ]

    def close(self) -> None:
        """Stop all scripts and the reader process."""
        self.context.jobs.close()
        self.context.logs.close()
        self.context.reader.close()

    def __enter__(self) -> Toolbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _dispatch(self, call: ToolCall, allowed: Sequence[str]) -> ToolResult:
        available = [name for name in self.tools if name in allowed]
        if call.name not in available:
            similar = difflib.get_close_matches(call.name, available, 1)
            hint = f" Did you mean {similar[0]}?" if similar else ""
            raise _MalformedCall(f"There is no tool {call.name!r} here.{hint} Tools: {', '.join(available)}.")
        tool = self.tools[call.name]
        if call.parse_error:
            raise _MalformedCall(
                f"The arguments of {call.name} were not a JSON object ({call.parse_error}). "
                f"Send the call again with {_format_usage(tool)}. {_format_schema(tool)}"
            )
        try:
            arguments = schema.coerce_arguments(tool, call.arguments)
        except ToolError as error:
            raise _MalformedCall(f"{call.name}: {error} Use: {_format_usage(tool)}. {_format_schema(tool)}") from None
        return tool(self.context, **arguments)

    def _limit_length(self, result: ToolResult) -> ToolResult:
        limit = self.context.max_result_chars
        if len(result.text) <= limit:
            return result
        logs = self.context.logs
        try:
            result_file = logs.next_file(RESULT_LOGS)[1]
            content = result.text.encode("utf-8", "replace")
            result_file.write_bytes(content)
            write_error = logs.publish(result_file, content)
        except OSError as error:
            write_error = error.strerror or str(error)
        if write_error:
            shortened = clip(result.text, limit, f"the rest could not be kept: {write_error}")
            return ToolResult(shortened, result.is_error, {**result.data, "full": ""})
        log_name = logs.display_name(result_file)
        data: dict[str, Any] = {**result.data, "full": log_name}
        return ToolResult(clip(result.text, limit, f"all of it is in {log_name}"), result.is_error, data)

    def _describe_os_error(self, error: OSError) -> str:
        """Return the message for a file system error, with the path as the agent writes it."""
        name = error.filename if isinstance(error.filename, str) else ""
        shown_path = self.context.roots.display_path(Path(name)) if name.startswith("/") else name
        if isinstance(error, UnsafePathError):
            return f"{shown_path}: {error.strerror}. Use another path."
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return "The disk is full: nothing more can be written. Delete what is not needed (old checkpoints, caches)."
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            return f"{shown_path}: a file or a link stands where a folder is needed. Use another path."
        if error.errno == errno.ENAMETOOLONG:
            return "The path is too long. Use shorter names."
        return f"{shown_path + ': ' if shown_path else ''}{error.strerror or error}."


def _format_usage(tool: Callable[..., ToolResult]) -> str:
    parameters = list(inspect.signature(tool).parameters.values())[1:]
    parameter_texts = [
        p.name if p.default is inspect.Parameter.empty else f"{p.name}={p.default!r}" for p in parameters
    ]
    return f"{tool.__name__}({', '.join(parameter_texts)})"


def _format_schema(tool: Callable[..., ToolResult]) -> str:
    """Return the schema of the arguments without the descriptions, which the model has already."""
    schema_json = json.dumps(_strip_descriptions(schema.make_tool_spec(tool).parameters), separators=(",", ":"))
    return f"Schema of the arguments: {schema_json}"


def _strip_descriptions(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    # The keys of `properties` are parameter names; one of them may be `description` itself.
    stripped = {
        key: value for key, value in node.items() if key not in ("description", "additionalProperties", "default")
    }
    if "properties" in stripped:
        stripped["properties"] = {name: _strip_descriptions(value) for name, value in stripped["properties"].items()}
    return stripped | ({"items": _strip_descriptions(stripped["items"])} if "items" in stripped else {})
