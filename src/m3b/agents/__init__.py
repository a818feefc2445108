"""The agent loop, the roles, and the checks of what a role hands over."""
