"""Recorded per-rank step times: a CSV or Parquet file from another tool."""
