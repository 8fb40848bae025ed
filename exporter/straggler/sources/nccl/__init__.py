"""NCCL's own log: transports, versions, bus ids and warnings; and what PyTorch's watchdog says beside it."""
