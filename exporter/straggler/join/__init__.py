"""Which rank is on which GPU. Pure functions."""
