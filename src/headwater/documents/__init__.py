"""Collaborative documents over streams; the rules are in `headwater.core.documents`.

Nothing here is loaded unless the server is told to serve documents. Yjs itself (`pycrdt`) is only
loaded in the processes that compact (`loading`), which the server starts, bounds and outlives.
"""
