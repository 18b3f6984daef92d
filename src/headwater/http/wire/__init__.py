"""The wire: sockets, bytes and their bounds. What a request means is none of its business.

`server` listens and `connection` answers one request after the other. `inbox`, `parsing` and
`known_heads` make requests of bytes; `response_heads`, `event_sink` and `file_sending` send what
is answered.
What strangers can make the server hold is bounded by `descriptors`, `handshakes`, `body_budget`,
`reader_budget` and `flow_control`.
"""
