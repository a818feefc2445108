"""Checks in plain Python that accept the artifact of a role, or name its issues."""
