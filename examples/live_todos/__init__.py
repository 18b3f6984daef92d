"""A list of todos for several tenants, kept fresh in a terminal and in a browser."""
