"""Nodes that share an engine: who owns what, and how that changes hands. Only loaded if they do."""
