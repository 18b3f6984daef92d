"""Durable responses: HTTP answers that outlive the connection of whoever asked for them.

The server makes a request for a caller (`upstream` says which ones, `allow_list` where to,
`forwarding` with which headers), keeps the answer as a stream while it arrives (`gathering`), and
gives out a signed address (`signing`) that reads it, now and later, and can abort it. How an answer
ended is told to its readers (`about`). `policy` has the bounds.

What happens to the answer of an upstream follows from its status: 2xx becomes a stream; 3xx is
refused and never followed; anything else is shown to the caller with its body, cut off at
`ERROR_BODY_BYTES_MAX`, and leaves no stream.
"""
