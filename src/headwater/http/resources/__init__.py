"""The handlers, a module for each resource: from a request to a command, and back to a response."""
