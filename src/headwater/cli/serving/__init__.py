"""`headwater serve` and `headwater up`: the server, its credentials, and what runs alongside."""
