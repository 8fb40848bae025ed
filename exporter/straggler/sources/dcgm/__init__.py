"""The page of dcgm-exporter: read over HTTP, parsed tolerantly, translated to base units."""
