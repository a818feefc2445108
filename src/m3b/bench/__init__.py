"""M3Bench: fourteen model-building tasks, their data sets, and the measurement of delivered models on hidden cases."""
