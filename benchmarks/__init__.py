"""Benchmarks: Headwater and the published reference server and client, measured in the same way.

``python -m benchmarks`` starts every server in turn as its own process, drives it from another
process and writes a table, ``results.json`` and a plot. docs/benchmarks.md says what each scenario
measures and how to read the figures.
"""
