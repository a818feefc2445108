"""A run: from a request to a delivered model, or to the reason why there is none."""
