"""Between the nodes of a cluster: forwarded requests, relayed feeds, hints and leases."""
