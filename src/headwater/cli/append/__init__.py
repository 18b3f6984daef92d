"""`headwater append`: from arguments, files and pipes into a stream."""
