"""Classification, grading, regression and survival."""
