"""Who is slow, since when, at what cost, why, and what to do: from a Prometheus, or from one sidecar."""
