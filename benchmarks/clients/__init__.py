"""The clients that are compared: each measurement runs in its own process.

``python -m benchmarks.clients`` reads a job as JSON from standard input. It writes ``ready`` when
the client is connected and has read something, and then its measurements as JSON. The PyPI client
has its own virtual environment, so nothing here needs more than the standard library and the client
that the job names.
"""
