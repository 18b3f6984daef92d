"""The Spark source compared with Spark's own readers, in one session of one process.

Runs with the interpreter that has Headwater installed. Like ``benchmarks.clients``, it is started
as a module and uses JSON for input and output.
"""
