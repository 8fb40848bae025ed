"""The dashboards' source. ``python -m dashboards.src.build`` writes ``dashboards/*.json``."""
