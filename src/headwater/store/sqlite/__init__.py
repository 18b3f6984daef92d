"""The SQLite engine, one module per part."""
