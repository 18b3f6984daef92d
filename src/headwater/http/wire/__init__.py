"""The wire: sockets, bytes and their limits. It does not care what a request means.

`server` listens and `connection` answers one request after the other. `inbox`, `parsing` and
`known_heads` turn bytes into requests; `response_heads`, `event_sink` and `file_sending` send the
answers. What strangers can make the server hold is bounded by `descriptors`, `handshakes`,
`body_budget`, `reader_budget` and `flow_control`.
"""
