"""The PostgreSQL engine: a server's streams in a PostgreSQL database.

Not to be confused with `headwater.postgres`, which follows the changes of another database and is
an ordinary client.
"""
