"""What the engines with tables, SQLite and PostgreSQL, share: rows to read, and rows to write.

Statements have `?` where a value goes; the PostgreSQL engine turns that into its own mark. Where
the two databases need different words, a class takes them as an argument. What is written goes
through `Tables`, so that each engine does it in as few statements as suits its database.
"""
