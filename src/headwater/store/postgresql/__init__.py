"""The PostgreSQL engine: the streams of a server, kept in a PostgreSQL database.

Not to be confused with `headwater.postgres`, which follows the changes of somebody else's database
and is a client like any other.
"""
