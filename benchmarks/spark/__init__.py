"""The Spark source beside Spark's own readers, in one session of one process.

Runs with the interpreter that has Headwater, and like ``benchmarks.clients`` it is started as a
module and talks JSON.
"""
