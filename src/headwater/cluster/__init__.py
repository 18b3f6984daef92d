"""Nodes that share an engine: who owns what, and how that changes. Only loaded in a cluster."""
