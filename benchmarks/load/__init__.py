"""The load generator: a process of its own that runs one job and prints its measurements.

``python -m benchmarks.load`` reads a job as JSON from standard input and writes the result as
JSON to standard output. It talks to 127.0.0.1 only. What keeps it lean enough not to be the
limit: uvloop, request bytes built beforehand, a protocol object per connection with no task and no
queue, and just as much parsing as the figure needs.
"""
