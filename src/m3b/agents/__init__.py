"""The agent loop, the roles, and the checks of their artifacts."""
