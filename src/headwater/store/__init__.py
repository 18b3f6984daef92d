"""Storage engines: where committed mutations are kept. See `headwater.store.engine`."""
