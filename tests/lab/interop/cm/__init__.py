"""Connection management: our tools against the stock ones on the kernel's `rdma_cm`."""
