"""`headwater consume`: a worker of a group, and what it does with messages."""
