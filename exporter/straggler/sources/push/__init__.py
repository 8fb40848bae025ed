"""Steps that arrive over HTTP instead of through a shared directory."""
