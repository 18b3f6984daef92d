"""Storage engines: where committed mutations live. See `headwater.store.engine`."""
