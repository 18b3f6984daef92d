"""History: the older part of streams, in immutable files next to the database.

What a stream has written is its *run*: bytes at positions that never change. The newest part of a
run is in rows of the database. Older parts are *extents* in *segment* files: contiguous spans of a
run, split between appends, in exactly the form that readers are sent. A long run fills whole
segments; short ones share them.

A segment is made after its appends were acknowledged, in these steps:

1. The file is written under a temporary name, renamed, synced, and its directory too.
2. It is read back and compared with what was to be written.
3. In transactions of bounded size, extents are recorded and exactly the rows they hold are dropped.

A crash before a transaction of step 3 leaves the rows, and one after it the extent: every byte of a
run is always in the rows or in an extent. A file that no transaction recorded is removed at the
next start.

A large append goes straight into a file, which the transaction of its commit records. Then there is
nothing to compare with, and nothing to drop.

- `segment_format`   what the bytes of a segment file mean
- `segment_writer`, `gathering`  writing one, and what goes into it
- `interleaving`, `placed_blocks`  many runs at once, each body in its place
- `extent`   one run's part of a segment: appends by position, number and time
- `segment`  reading one, with every block compared with its checksum at first touch
- `open_segments`    the files that are open
- `chunk_cache`  where chunks that were read before lie
- `ledger`   how much of each run is still in rows
- `sealing`  from rows to recorded extents
- `large_appends`  what is never in a row
- `compaction_choice`, `compaction`  from many files to few
- `page_cache`       whether the kernel has them in memory
- `direct`   segments read by others than the server
- `policies`, `abandonable_calls`  what can be chosen, and calls that may never end
- `verification`     whether each file holds what the database says
- `archive`, `object_storage`, `catalog`, `cold_segments`  object storage, and back from there
- `remote`  files that are in object storage only
- `recovery`, `orphans`  what is left of a machine that was lost
"""
