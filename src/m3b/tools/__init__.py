"""The eight tools of an agent: preview data, read and write files, run scripts in the sandbox."""

from m3b.tools.context import ToolResult
from m3b.tools.jobs import ScriptJob
from m3b.tools.paths import Roots
from m3b.tools.toolbox import REPEATABLE, TOOLS, Toolbox

__all__ = ["REPEATABLE", "TOOLS", "ScriptJob", "Roots", "ToolResult", "Toolbox"]
