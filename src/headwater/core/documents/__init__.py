"""Collaborative documents: what the Yjs layer adds to streams.

A document is a stream of Yjs updates, framed by their lengths (`framing`). Its address says which
stream that is, and which streams belong to it (`addresses`). When enough has been written since
the last snapshot, there is another one (`compaction`), which must hold everything that was written
before it, also what the document itself does not show yet (`pending`).
"""
