"""The running system: one writer for all streams, their live state in memory, their readers."""
