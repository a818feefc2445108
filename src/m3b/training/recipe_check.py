"""Check that the engine of a plan calls the methods that a project changes: it is refused, not trained without its change."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from typing import Any

from m3b.training.recipe import RECIPE_FILE, RECIPE_METHODS, Recipe, get_recipe


def check_recipe(plan: Mapping[str, Any]) -> None:
    """Check that the engine of the plan calls every method that the project's recipe changes.

    Raises:
        SystemExit: it does not; the message names the methods, and what calls them.
    """
    recipe = get_recipe()
    called = recipe.list_engine_methods(plan)
    if unused := [name for name in list_changed_methods(recipe) if name not in called.methods]:
        raise SystemExit(
            f"{RECIPE_FILE} changes {', '.join(unused)}, which the engine {called.engine} does not call: remove the change, or "
            f"{called.remedy}"
        )


def list_changed_methods(recipe: Recipe) -> list[str]:
    """Return the methods that the classes of recipe.py change; one that only returns that of its base is unchanged."""
    own_classes = [part for part in type(recipe).__mro__ if not part.__module__.startswith("m3b.")]
    methods = [(name, vars(part)[name]) for part in own_classes for name in RECIPE_METHODS if name in vars(part)]
    changed = {name for name, method in methods if _has_own_code(method)}
    return sorted(changed if recipe.added_channels else changed - {"derive_channels"})


def _has_own_code(method: Any) -> bool:
    """Return whether a method does more than return that of its base."""
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(method))).body
    assert isinstance(function, ast.FunctionDef)
    arguments = ", ".join(argument.arg for argument in function.args.args[1:])
    return ast.unparse(function.body[-1]) != f"return super().{function.name}({arguments})" or len(function.body) > 2
