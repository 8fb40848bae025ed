"""The metric contract: catalogue, families, exposition."""
