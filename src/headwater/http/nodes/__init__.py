"""Between the nodes of a cluster: requests that are passed on, relayed feeds, hints and leases."""
