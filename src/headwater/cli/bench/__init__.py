"""`headwater bench`. The project's own benchmarks use the same load generator."""
