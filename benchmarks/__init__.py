"""Benchmarks: Headwater beside the published reference server and client, measured alike.

``python -m benchmarks`` starts every server in turn as its own process, drives it from another
process and writes a table, ``results.json`` and a plot. docs/benchmarks.md says what each
scenario measures and how to read the figures.
"""
