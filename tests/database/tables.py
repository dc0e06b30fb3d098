"""A schema for the traps, so that they stay closed whatever happens to the real one."""

from __future__ import annotations

TABLES = """
-- section 0001: what the traps need
CREATE TABLE counters (
    id     TEXT PRIMARY KEY,
    value  INTEGER NOT NULL
);
CREATE TABLE things (
    id        TEXT PRIMARY KEY,
    name      TEXT,
    score     INTEGER,
    flag      BOOLEAN,
    seen_at   TIMESTAMPTZ,
    document  JSONB,
    body      BYTEA
);
CREATE UNIQUE INDEX things_by_name ON things (name) WHERE name IS NOT NULL;
CREATE INDEX things_by_score ON things (score, id);
CREATE TABLE pairs (
    one    TEXT NOT NULL,
    other  TEXT NOT NULL,
    label  TEXT,
    UNIQUE (one, other)
);
CREATE UNIQUE INDEX pairs_by_label ON pairs (lower(label));

-- section 0002: a constraint that speaks at COMMIT
CREATE TABLE parts (
    id        TEXT PRIMARY KEY,
    thing_id  TEXT NOT NULL REFERENCES things (id) DEFERRABLE INITIALLY DEFERRED
);
"""
