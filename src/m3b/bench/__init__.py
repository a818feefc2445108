"""M3Bench: fourteen model-building tasks, their data sets and the honest measuring of what was built."""
