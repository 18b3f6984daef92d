"""The load generator: a separate process that runs one job and prints its measurements.

``python -m benchmarks.load`` reads a job as JSON from standard input and writes the result as JSON
to standard output. It talks to 127.0.0.1 only. To be lean enough not to be the bottleneck, it uses
uvloop, prebuilt request bytes, one protocol object per connection without tasks or queues, and only
as much parsing as the figure needs.
"""
