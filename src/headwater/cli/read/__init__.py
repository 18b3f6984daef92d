"""`headwater read` and `headwater tail`: from streams to stdout, in any format."""
