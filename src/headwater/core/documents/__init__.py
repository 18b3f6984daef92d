"""Collaborative documents: what the Yjs layer adds to streams.

A document is a stream of Yjs updates, framed by their lengths (`framing`). Its address determines
that stream and the streams that belong to it (`addresses`). When enough has been written since the
last snapshot, a new one is made (`compaction`). It must hold everything written before it,
including updates that the document does not show yet (`pending`).
"""
