"""Scenarios and a fake node: what the demo, the tests and the cost model run on."""
