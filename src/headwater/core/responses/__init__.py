"""Durable responses: HTTP responses that outlive the connection of the client that requested them.

The server makes a request for a caller (`upstream` says which ones, `allow_list` where to,
`forwarding` with which headers), stores the answer as a stream while it arrives (`gathering`), and
returns a signed address (`signing`) that can read it, now and later, and abort it. Readers learn
how an answer ended (`about`). `policy` has the bounds.

The status of the upstream's answer decides what happens to it: 2xx becomes a stream; 3xx is refused
and never followed; anything else is returned to the caller with its body, truncated at
`ERROR_BODY_BYTES_MAX`, and leaves no stream.
"""
