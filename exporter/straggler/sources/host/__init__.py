"""What the kernel says about this node and its ranks' processes: waiting for CPU, memory or disks."""
