"""The layout of the PostgreSQL database, and how older layouts become the current one.

Everything is in its own schema, `headwater`. Version n of the layout is the result of
`MIGRATIONS[:n]`. A migration is never edited once it has been released: a new layout is a new entry
at the end.

The tables are those of the SQLite engine, with the same columns (`headwater.store.rows`). The
differences:

- `cluster` has one row: whose database this is, its layout, and how many shards it has.
- `nodes` has a row per node: where others reach it, its epoch, and a counter that it raises to show
  that it is alive. `fence` is the first statement of every transaction that writes: it fails unless
  the node has that epoch, and locks the row, so that no other node can take over before the
  transaction has ended. It takes the weakest lock that conflicts with a take-over (which deletes
  the row) but not with updates of the counter.
- `shards` has a row per shard: its owner, and an epoch that counts how often that changed. `home`
  is the shard of a subscription, and of a path that is bound to no label. `bindings` says which
  paths are, and the column `label` which shards are for them.
- A sequence per kind assigns ids: never one twice, and later ones are larger.
- Streams and subscriptions carry their shard.
- `segments` are in object storage only (`headwater.store.postgresql.history`). `maker` is the node
  that may still add extents to one, `unused_at` the time since when it has none.
- There are no foreign keys: core has already checked consistency, and each would cost a look-up per
  row.
- Rows that change often leave free space on their page, so that a change touches no index.
"""

from __future__ import annotations

import re
from typing import Final

from headwater.core.cluster import SHARDS_DEFAULT

SCHEMA: Final = "headwater"
PURPOSE: Final = "durable streams"
LOST_SHARD: Final = "HW001"
"""The SQLSTATE of a refusal by `fence`."""

_V1 = f"""
CREATE TABLE cluster (
  single boolean PRIMARY KEY DEFAULT true CHECK (single),
  purpose text NOT NULL,
  id uuid NOT NULL DEFAULT gen_random_uuid(),
  layout integer NOT NULL,
  shards integer NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO cluster (purpose, layout, shards) VALUES ('{PURPOSE}', 0, 1);

CREATE TABLE shards (
  id integer PRIMARY KEY,
  epoch bigint NOT NULL DEFAULT 0,
  owner text,
  lease_ms integer NOT NULL DEFAULT 0,
  counter bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 20);
INSERT INTO shards (id) VALUES (0);

CREATE FUNCTION fence(wanted integer, held bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM {SCHEMA}.shards WHERE id = wanted AND epoch = held FOR KEY SHARE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'shard % is not held in epoch % any more', wanted, held
      USING ERRCODE = '{LOST_SHARD}';
  END IF;
END $$;

CREATE TABLE ids (
  kind text PRIMARY KEY,
  last bigint NOT NULL
) WITH (fillfactor = 20);
INSERT INTO ids VALUES ('streams', 0), ('groups', 0), ('subscriptions', 0);

CREATE TABLE streams (
  id bigint PRIMARY KEY,
  shard integer NOT NULL,
  path text COLLATE "C" NOT NULL,
  content_type text NOT NULL,
  created_at bigint NOT NULL,
  ttl_s bigint,
  expires_at bigint,
  expires_text text,
  lifetime_inherited smallint NOT NULL DEFAULT 0,
  touched_at bigint NOT NULL,
  deadline bigint,
  closed_at bigint,
  closed_by_id text,
  closed_by_epoch bigint,
  closed_by_seq bigint,
  last_stream_seq text,
  source_id bigint,
  fork_source text,
  fork_offset text,
  fork_sub_offset bigint,
  inherited text,
  base bigint NOT NULL DEFAULT 0,
  base_messages bigint NOT NULL DEFAULT 0,
  version bigint NOT NULL DEFAULT 0,
  description text,
  unique_ids text,
  id_pointer text,
  profile text,
  retention_s bigint,
  retention_bytes bigint,
  kept_from bigint NOT NULL DEFAULT 0,
  trim_due bigint,
  relaxed smallint NOT NULL DEFAULT 0,
  status smallint NOT NULL DEFAULT 0,
  deleted_at bigint
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX streams_path ON streams (path) WHERE status < 2;
CREATE INDEX streams_source ON streams (source_id, base, id)
  WHERE source_id IS NOT NULL AND status < 2;
CREATE INDEX streams_deadline ON streams (deadline) WHERE deadline IS NOT NULL AND status = 0;
CREATE INDEX streams_deleted ON streams (id) WHERE status = 2;
CREATE INDEX streams_soft_deleted ON streams (id) WHERE status = 1;
CREATE INDEX streams_trim_due ON streams (trim_due) WHERE trim_due IS NOT NULL AND status = 0;

CREATE TABLE releases (
  stream_id bigint PRIMARY KEY,
  start bigint NOT NULL,
  until bigint NOT NULL
);

CREATE TABLE ops (
  stream_id bigint NOT NULL,
  start bigint NOT NULL,
  first_message bigint NOT NULL,
  messages bigint NOT NULL,
  created_at bigint NOT NULL,
  checksum bigint NOT NULL,
  producer_id text,
  producer_epoch bigint,
  producer_seq bigint,
  message_id text,
  body bytea NOT NULL,
  PRIMARY KEY (stream_id, start)
);
ALTER TABLE ops ALTER body SET STORAGE EXTERNAL;

CREATE TABLE producers (
  stream_id bigint NOT NULL,
  producer_id text COLLATE "C" NOT NULL,
  epoch bigint NOT NULL,
  seq bigint NOT NULL,
  used_at bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (stream_id, producer_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE message_ids (
  stream_id bigint NOT NULL,
  message_id text COLLATE "C" NOT NULL,
  position bigint NOT NULL,
  PRIMARY KEY (stream_id, message_id)
);

CREATE TABLE groups (
  id bigint PRIMARY KEY,
  stream_id bigint NOT NULL,
  name text COLLATE "C" NOT NULL,
  created_at bigint NOT NULL,
  config text NOT NULL,
  paused smallint NOT NULL DEFAULT 0,
  cursor_number bigint NOT NULL,
  cursor_start bigint NOT NULL,
  cursor_place bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
CREATE UNIQUE INDEX groups_stream_name ON groups (stream_id, name);

CREATE TABLE deliveries (
  group_id bigint NOT NULL,
  number bigint NOT NULL,
  start bigint NOT NULL,
  place bigint NOT NULL,
  phase smallint NOT NULL,
  until bigint NOT NULL,
  deliveries bigint NOT NULL,
  token bigint NOT NULL,
  consumer text,
  key text,
  PRIMARY KEY (group_id, number)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE live_templates (
  stream_id bigint NOT NULL,
  template_id text COLLATE "C" NOT NULL,
  spec text NOT NULL,
  last_seen bigint NOT NULL,
  ttl_ms bigint NOT NULL,
  PRIMARY KEY (stream_id, template_id)
);

CREATE TABLE snapshots (
  stream_id bigint NOT NULL,
  position bigint NOT NULL,
  content_type text NOT NULL,
  created_at bigint NOT NULL,
  checksum bigint NOT NULL,
  body bytea NOT NULL,
  PRIMARY KEY (stream_id, position)
);
ALTER TABLE snapshots ALTER body SET STORAGE EXTERNAL;

CREATE TABLE subscriptions (
  id bigint PRIMARY KEY,
  shard integer NOT NULL,
  name text COLLATE "C" NOT NULL,
  created_at bigint NOT NULL,
  base_url text NOT NULL,
  config text NOT NULL,
  generation bigint NOT NULL,
  phase smallint NOT NULL,
  wake_id text NOT NULL,
  until bigint NOT NULL,
  attempts bigint NOT NULL,
  holder text
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX subscriptions_name ON subscriptions (name);

CREATE TABLE subscription_links (
  subscription_id bigint NOT NULL,
  path text COLLATE "C" NOT NULL,
  explicit smallint NOT NULL,
  stream_id bigint NOT NULL,
  acked bigint NOT NULL,
  PRIMARY KEY (subscription_id, path)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE secrets (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind text NOT NULL,
  value bytea NOT NULL,
  created_at bigint NOT NULL
);
"""

_V2 = """
UPDATE producers SET used_at = (extract(epoch FROM now()) * 1000)::bigint WHERE used_at = 0;
CREATE INDEX producers_used ON producers (used_at);
"""

_V3 = """
ALTER TABLE streams ADD COLUMN kept_until bigint;
CREATE INDEX streams_kept ON streams (path, deleted_at, id) WHERE status = 3;
CREATE INDEX streams_kept_until ON streams (kept_until) WHERE status = 3;
"""


def _reshard(*, subscriptions: str) -> str:
    """The function that changes the number of shards."""
    return f"""
CREATE OR REPLACE FUNCTION reshard(wanted integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE {SCHEMA}.cluster SET shards = wanted;
  DELETE FROM {SCHEMA}.shards WHERE id >= wanted;
  INSERT INTO {SCHEMA}.shards (id) SELECT generate_series(0, wanted - 1) ON CONFLICT DO NOTHING;
  WITH RECURSIVE family (id, shard) AS (
    SELECT s.id, {SCHEMA}.home(s.path) FROM {SCHEMA}.streams s WHERE NOT EXISTS (
      SELECT 1 FROM {SCHEMA}.streams f WHERE f.id = s.source_id)
    UNION ALL SELECT s.id, f.shard FROM {SCHEMA}.streams s JOIN family f ON s.source_id = f.id
  )
  UPDATE {SCHEMA}.streams s SET shard = f.shard FROM family f WHERE f.id = s.id;
  UPDATE {SCHEMA}.subscriptions SET shard = {subscriptions};
END $$;"""


_V4 = f"""
CREATE TABLE nodes (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text NOT NULL,
  address text,
  epoch bigint NOT NULL DEFAULT 1,
  counter bigint NOT NULL DEFAULT 0,
  lease_ms integer NOT NULL,
  draining smallint NOT NULL DEFAULT 0,
  joined_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 20);

DROP FUNCTION fence(integer, bigint);
CREATE FUNCTION fence(wanted bigint, held bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM {SCHEMA}.nodes WHERE id = wanted AND epoch = held FOR KEY SHARE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'node % is not there in epoch % any more', wanted, held
      USING ERRCODE = '{LOST_SHARD}';
  END IF;
END $$;

ALTER TABLE shards DROP COLUMN owner, DROP COLUMN lease_ms, DROP COLUMN counter,
  ADD COLUMN node_id bigint;
UPDATE shards SET epoch = epoch + 1;

CREATE FUNCTION home(name text) RETURNS integer LANGUAGE sql STABLE AS $$
  SELECT (('x' || encode(substr(sha256(convert_to(name, 'UTF8')), 1, 4), 'hex'))::bit(32)::bigint
    & 4294967295) % (SELECT shards FROM {SCHEMA}.cluster)
$$;

{_reshard(subscriptions="0")}
SELECT reshard({SHARDS_DEFAULT});

CREATE SEQUENCE streams_ids;
CREATE SEQUENCE groups_ids;
CREATE SEQUENCE subscriptions_ids;
SELECT setval(kind || '_ids', last) FROM ids WHERE last > 0;
DROP TABLE ids;
"""

_V5 = """
ALTER TABLE nodes ADD COLUMN labels text NOT NULL DEFAULT '';
ALTER TABLE shards ADD COLUMN label text;
CREATE TABLE bindings (
  prefix text COLLATE "C" PRIMARY KEY,
  label text NOT NULL
);
"""

_V6 = f"""
{_reshard(subscriptions=f"{SCHEMA}.home(name)")}
UPDATE subscriptions SET shard = home(name);
"""

_V7 = """
CREATE SEQUENCE segments_ids;
CREATE TABLE segments (
  id bigint PRIMARY KEY,
  name text NOT NULL,
  size bigint NOT NULL,
  root text NOT NULL,
  created_at bigint NOT NULL,
  local smallint NOT NULL DEFAULT 0,
  remote smallint NOT NULL,
  maker bigint,
  unused_at bigint
);
CREATE INDEX segments_made ON segments (maker) WHERE maker IS NOT NULL;
CREATE INDEX segments_unused ON segments (unused_at) WHERE unused_at IS NOT NULL;

CREATE TABLE extents (
  run bigint NOT NULL,
  start bigint NOT NULL,
  until bigint NOT NULL,
  appends bigint NOT NULL,
  first_message bigint NOT NULL,
  messages bigint NOT NULL,
  first_at bigint NOT NULL,
  last_at bigint NOT NULL,
  segment_id bigint NOT NULL,
  index_offset bigint NOT NULL,
  PRIMARY KEY (run, start)
);
CREATE INDEX extents_segment ON extents (segment_id);
"""

MIGRATIONS: Final = (_V1, _V2, _V3, _V4, _V5, _V6, _V7)
LAYOUT: Final = len(MIGRATIONS)

_DECLARED: Final = re.compile(
    r"(?:^  |ADD COLUMN )(\w+) (bigint|integer|smallint|text|bytea)", re.M
)
COLUMN_TYPES: Final[dict[str, str]] = {
    name: declared if declared in ("text", "bytea") else "bigint"
    for name, declared in _DECLARED.findall("".join(MIGRATIONS))
}
"""The types of columns by name: a name means the same in every table."""
