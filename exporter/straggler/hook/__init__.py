"""What runs inside the training process: standard library and ``wire``, nothing else."""
