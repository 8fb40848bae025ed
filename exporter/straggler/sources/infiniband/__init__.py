"""RDMA adapters, InfiniBand and RoCE, as the kernel shows them under ``/sys/class/infiniband``."""
