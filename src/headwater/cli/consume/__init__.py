"""`headwater consume`: a worker of a group, and how it handles messages."""
