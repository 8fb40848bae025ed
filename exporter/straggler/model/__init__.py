"""Frozen facts: the vocabulary that every layer from the sources to the metrics speaks."""
