"""The survey: the facts of a folder that nobody prepared, measured once, without any decision."""
