"""Live: telling queries that they may have become stale.

The change records of a stream (the State Protocol) are turned into *keys*, hashes that stand for a
table, for a query shape, or for the rows that a query looks at. A client that ran a query waits on
its keys and runs it again when one of them is touched. The guarantee is one-sided: extra wakes are
allowed, missed ones never are. When full precision costs too much, a coarser key is touched
instead.

    keys, encodings     what a key is made of
    records             change records: what is well formed
    profile             how a stream is set up for it
    templates           the query shapes that are tracked
    touches             which keys a change touches
    guard               how precise the server can afford to be
    journal, history    what was touched since when
    interest            what a wait has to listen to, so that nothing is missed
"""
