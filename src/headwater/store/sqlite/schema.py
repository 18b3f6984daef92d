"""The layout of the SQLite database, and how older layouts become the current one.

Version n of the schema is the result of `MIGRATIONS[:n]` on an empty file. A migration is never
edited once it has been released: a new layout is a new entry at the end.

- `streams` has a row per stream, including deleted ones until their data is gone. Ids are never
  reused. `kept_until` says how long a deleted one can be undeleted. What changes with every append
  (the tail, the message count) is not here but in the last row of `ops`, so that a commit touches
  one place per append and not two.
- `ops` is the log of all streams in commit order, so that a batch is written to neighbouring pages;
  the index finds the appends of one stream.
- `releases` has the positions that streams have released and the collector has not processed yet;
  see `headwater.store.garbage`. `base` is where a stream's own run begins, `trim_due` when to check
  whether it keeps more than it has to.
- `message_ids` has the start of each message of a stream with unique ids. It is on disk only.
- `groups` has the cursor of each consumer group, `deliveries` the messages before it that are not
  settled. Messages before the cursor that are not in `deliveries` are done.
- `segments` has a row per file of history, `extents` one for each extent in such a file. What is in
  an extent is not in `ops`; see `headwater.store.history`.
- `live_templates` are the query shapes that live streams follow.
- `snapshots` are folded states of a stream, each at an offset.
- `producers` holds the last request accepted from each idempotent producer, and in which hour.
- `subscriptions` has a row per subscription with its current wake, `subscription_links` the place
  in each linked stream, if there is one to remember.
- `secrets` holds what webhook requests are signed with and what tokens are made of.
"""

from __future__ import annotations

from typing import Final

APPLICATION_ID: Final = 0x48574C47  # "HWLG"

_V1 = """
CREATE TABLE streams (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  path TEXT NOT NULL,
  content_type TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  ttl_s INTEGER,
  expires_at INTEGER,
  expires_text TEXT,
  lifetime_inherited INTEGER NOT NULL DEFAULT 0,
  touched_at INTEGER NOT NULL,
  deadline INTEGER,
  closed_at INTEGER,
  closed_by_id TEXT,
  closed_by_epoch INTEGER,
  closed_by_seq INTEGER,
  last_stream_seq TEXT,
  source_id INTEGER,
  fork_source TEXT,
  fork_offset TEXT,
  fork_sub_offset INTEGER,
  inherited TEXT,
  base_messages INTEGER NOT NULL DEFAULT 0,
  version INTEGER NOT NULL DEFAULT 0,
  description TEXT,
  unique_ids TEXT,
  id_pointer TEXT,
  status INTEGER NOT NULL DEFAULT 0,
  deleted_at INTEGER
);
CREATE UNIQUE INDEX streams_path ON streams (path) WHERE status < 2;
CREATE INDEX streams_source ON streams (source_id) WHERE source_id IS NOT NULL AND status < 2;
CREATE INDEX streams_deadline ON streams (deadline) WHERE deadline IS NOT NULL AND status = 0;
CREATE INDEX streams_deleted ON streams (id) WHERE status = 2;

CREATE TABLE producers (
  stream_id INTEGER NOT NULL,
  producer_id TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  PRIMARY KEY (stream_id, producer_id)
) WITHOUT ROWID;

CREATE TABLE message_ids (
  stream_id INTEGER NOT NULL,
  message_id TEXT NOT NULL,
  position INTEGER NOT NULL,
  PRIMARY KEY (stream_id, message_id)
) WITHOUT ROWID;

CREATE TABLE groups (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  stream_id INTEGER NOT NULL,
  name TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  config TEXT NOT NULL,
  paused INTEGER NOT NULL DEFAULT 0,
  cursor_number INTEGER NOT NULL,
  cursor_start INTEGER NOT NULL,
  cursor_place INTEGER NOT NULL
);
CREATE UNIQUE INDEX groups_stream_name ON groups (stream_id, name);

CREATE TABLE deliveries (
  group_id INTEGER NOT NULL,
  number INTEGER NOT NULL,
  start INTEGER NOT NULL,
  place INTEGER NOT NULL,
  phase INTEGER NOT NULL,
  until INTEGER NOT NULL,
  deliveries INTEGER NOT NULL,
  token INTEGER NOT NULL,
  consumer TEXT,
  key TEXT,
  PRIMARY KEY (group_id, number)
) WITHOUT ROWID;

CREATE TABLE ops (
  id INTEGER PRIMARY KEY,
  stream_id INTEGER NOT NULL,
  start INTEGER NOT NULL,
  first_message INTEGER NOT NULL,
  messages INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  checksum INTEGER NOT NULL,
  producer_id TEXT,
  producer_epoch INTEGER,
  producer_seq INTEGER,
  body BLOB NOT NULL
);
CREATE UNIQUE INDEX ops_stream_start ON ops (stream_id, start);
"""

_V2 = """
CREATE TABLE segments (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL,
  size INTEGER NOT NULL,
  root TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  local INTEGER NOT NULL DEFAULT 1,
  remote INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX segments_local ON segments (size) WHERE local = 1;
CREATE INDEX segments_not_remote ON segments (id) WHERE remote <> 1;

CREATE TABLE extents (
  run INTEGER NOT NULL,
  start INTEGER NOT NULL,
  until INTEGER NOT NULL,
  appends INTEGER NOT NULL,
  first_message INTEGER NOT NULL,
  messages INTEGER NOT NULL,
  first_at INTEGER NOT NULL,
  last_at INTEGER NOT NULL,
  segment_id INTEGER NOT NULL,
  index_offset INTEGER NOT NULL,
  PRIMARY KEY (run, start)
) WITHOUT ROWID;
CREATE INDEX extents_segment ON extents (segment_id);

ALTER TABLE streams ADD COLUMN retention_s INTEGER;
ALTER TABLE streams ADD COLUMN retention_bytes INTEGER;
ALTER TABLE streams ADD COLUMN kept_from INTEGER NOT NULL DEFAULT 0;
CREATE INDEX streams_retention ON streams (id)
  WHERE status = 0 AND (retention_s IS NOT NULL OR retention_bytes IS NOT NULL);
"""

_V3 = """
ALTER TABLE streams ADD COLUMN profile TEXT;

CREATE TABLE live_templates (
  stream_id INTEGER NOT NULL,
  template_id TEXT NOT NULL,
  spec TEXT NOT NULL,
  last_seen INTEGER NOT NULL,
  ttl_ms INTEGER NOT NULL,
  PRIMARY KEY (stream_id, template_id)
) WITHOUT ROWID;
"""

_V4 = """
CREATE TABLE subscriptions (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  base_url TEXT NOT NULL,
  config TEXT NOT NULL,
  generation INTEGER NOT NULL,
  phase INTEGER NOT NULL,
  wake_id TEXT NOT NULL,
  until INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  holder TEXT
);
CREATE UNIQUE INDEX subscriptions_name ON subscriptions (name);

CREATE TABLE subscription_links (
  subscription_id INTEGER NOT NULL,
  path TEXT NOT NULL,
  explicit INTEGER NOT NULL,
  stream_id INTEGER NOT NULL,
  acked INTEGER NOT NULL,
  PRIMARY KEY (subscription_id, path)
) WITHOUT ROWID;

CREATE TABLE secrets (
  id INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  value BLOB NOT NULL,
  created_at INTEGER NOT NULL
);
"""

_V5 = """
CREATE TABLE snapshots (
  stream_id INTEGER NOT NULL,
  position INTEGER NOT NULL,
  content_type TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  checksum INTEGER NOT NULL,
  body BLOB NOT NULL,
  PRIMARY KEY (stream_id, position)
);
"""

# Columns derived from others, for rows that were written without them.
DERIVED: Final = """
UPDATE streams SET base = json_extract(inherited, '$[#-1][1]') WHERE inherited IS NOT NULL;
UPDATE streams SET trim_due = 0 WHERE trim_due IS NULL
  AND (retention_s IS NOT NULL OR retention_bytes IS NOT NULL);
UPDATE producers SET used_at = unixepoch() * 1000 WHERE used_at = 0;
INSERT OR REPLACE INTO releases SELECT id, 0, 9223372036854775807 FROM streams
  WHERE status = 1 OR (status = 0 AND kept_from > 0);
"""

_V6 = f"""
ALTER TABLE streams ADD COLUMN base INTEGER NOT NULL DEFAULT 0;
DROP INDEX streams_source;
CREATE INDEX streams_source ON streams (source_id, base, id)
  WHERE source_id IS NOT NULL AND status < 2;
CREATE INDEX streams_soft_deleted ON streams (id) WHERE status = 1;

CREATE TABLE releases (
  stream_id INTEGER PRIMARY KEY,
  start INTEGER NOT NULL,
  until INTEGER NOT NULL
);

DROP INDEX streams_retention;
ALTER TABLE streams ADD COLUMN trim_due INTEGER;
CREATE INDEX streams_trim_due ON streams (trim_due) WHERE trim_due IS NOT NULL AND status = 0;

ALTER TABLE producers ADD COLUMN used_at INTEGER NOT NULL DEFAULT 0;
{DERIVED}"""

_V7 = """
ALTER TABLE ops ADD COLUMN message_id TEXT;
"""

_V8 = """
ALTER TABLE streams ADD COLUMN relaxed INTEGER NOT NULL DEFAULT 0;
"""

_V9 = """
UPDATE producers SET used_at = unixepoch() * 1000 WHERE used_at = 0;
CREATE INDEX producers_used ON producers (used_at);
"""

_V10 = """
ALTER TABLE streams ADD COLUMN kept_until INTEGER;
CREATE INDEX streams_kept ON streams (path, deleted_at, id) WHERE status = 3;
CREATE INDEX streams_kept_until ON streams (kept_until) WHERE status = 3;
"""

MIGRATIONS: Final = (_V1, _V2, _V3, _V4, _V5, _V6, _V7, _V8, _V9, _V10)
SCHEMA_VERSION: Final = len(MIGRATIONS)
