"""What slow means: formulas, thresholds, verdicts. Pure functions."""
