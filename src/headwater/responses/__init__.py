"""Durable responses: requests made for others, whose answers are kept as streams.

The rules are in `core.responses`. `Responses` has what callers can do, and a `Transfer` is one
answer on its way into its stream. Without patterns of allowed addresses none of this is loaded.
"""
