"""Live reads over HTTP: Server-Sent Events, long-polls, and several streams over one connection."""
