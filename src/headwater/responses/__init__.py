"""Durable responses: requests made for callers, whose answers are kept as streams.

The rules are in `core.responses`. `Responses` has the operations for callers, and a `Transfer`
moves one answer into its stream. Without allowed address patterns none of this is loaded.
"""
