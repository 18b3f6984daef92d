"""HTTP: translates requests into commands and replies into responses. Decides nothing.

A request comes in over the wire, its route is found, access is checked, and a resource answers it:

- `wire`: sockets and bytes: connections, parsing, TLS, and what strangers can make us hold
- `routes`: the table of routes; dispatch, permissions and OpenAPI come from it
- `access`: who is calling, and whether they may
- `resources`: the handlers, a module for each resource
- `feeds`: live reads: Server-Sent Events, long-polls, several streams over one connection
- `nodes`: between the nodes of a cluster: forwarding, relays, hints, leases
- `observe`: metrics, figures for charts, the access log, traces
- `console` and `js`: what browsers load

app           from a request to its route and handler
messages      what passes between the wire and the handlers: requests, responses, event streams
paths         request targets: from bytes to a path
queries       the part of a target after the question mark
headers       names of request headers
answers       answers that many resources give
reads         catch-up reads: from a chunk of a stream to a response
compression   content encodings
errors        from an error to a response
error_pages   what each error code means, and what to do
dialects      error codes of other contracts
browsers      what web pages may request
cors          what browsers are told about other origins
quotas        requests that wait until a quota is counted
"""
