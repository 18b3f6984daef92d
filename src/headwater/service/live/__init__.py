"""Live streams in service: changes are derived as they are committed, waits are answered.

stream     one live stream: follows the log, closes buckets, wakes waiting clients
changes    what is still to be derived, read from the log
waits      waits and their deadlines, in one heap
registry   all live streams: found, started, collected
metrics    what happened, as a stream of its own
figures    what live streams count
"""
