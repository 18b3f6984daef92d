"""Collaborative documents over streams; the rules are in `headwater.core.documents`.

Nothing here is loaded unless the server is configured to serve documents. Yjs itself (`pycrdt`) is
only loaded in the worker processes (`loading`), which the server starts, bounds and outlives.
"""
