"""What the engines with tables, SQLite and PostgreSQL, share: rows to read, and rows to write.

Statements use `?` for values; the PostgreSQL engine replaces it with its own placeholder. Where the
two databases need different SQL, a class takes it as an argument. Writes go through `Tables`, so
that each engine uses as few statements as suits its database.
"""
