"""The memory engine, for tests and throw-away servers. Nothing survives the process."""
