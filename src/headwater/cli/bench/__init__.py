"""`headwater bench`. The load generator serves the project's own benchmarks too."""
