"""The SQLite engine, a module for each of its parts."""
