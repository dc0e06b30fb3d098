-- Tidings' data, in the order of the story: who, to whom, what, and what happened.
--
-- One text for PostgreSQL and SQLite. Numbered sections are applied once, in order, and recorded in
-- schema_migrations; an applied section never changes: append a new one. A deploy runs old and new
-- code side by side, so a change expands first and contracts a release later.
-- Every tenant table starts with workspace_id and every key that can carries it first, so that the
-- data can be sharded by workspace. Ids are time-ordered; times are UTC.

-- section 0001: who

-- A random data key, wrapped by SECRET_KEY; encrypts what must be readable again.
CREATE TABLE data_keys (
    id          TEXT PRIMARY KEY,
    wrapped     BYTEA NOT NULL,
    created_at  TIMESTAMPTZ NOT NULL
);

-- A person who can sign in.
CREATE TABLE users (
    id             TEXT PRIMARY KEY,
    email          TEXT NOT NULL,
    email_key      TEXT NOT NULL UNIQUE,          -- case-folded
    name           TEXT NOT NULL,
    password_hash  TEXT NOT NULL,                 -- argon2id
    super_admin    BOOLEAN NOT NULL,
    created_at     TIMESTAMPTZ NOT NULL
);

-- A tenant: everything below belongs to exactly one.
CREATE TABLE workspaces (
    id          TEXT PRIMARY KEY,
    name        TEXT NOT NULL,
    timezone    TEXT NOT NULL,
    country     TEXT,                             -- ISO 3166-1; reads national phone numbers
    suspended   BOOLEAN NOT NULL,
    revision    INTEGER NOT NULL,
    created_at  TIMESTAMPTZ NOT NULL,
    updated_at  TIMESTAMPTZ NOT NULL
);

-- A user's role in a workspace.
CREATE TABLE memberships (
    workspace_id  TEXT NOT NULL REFERENCES workspaces (id),
    id            TEXT NOT NULL,
    user_id       TEXT NOT NULL REFERENCES users (id),
    role          TEXT NOT NULL,
    created_at    TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id),
    UNIQUE (workspace_id, user_id)
);
CREATE INDEX memberships_by_user ON memberships (user_id, id);

-- One sign-in, acting in one workspace; ends by log-out, or when a refresh token is used twice.
CREATE TABLE sessions (
    id            TEXT PRIMARY KEY,
    user_id       TEXT NOT NULL REFERENCES users (id),
    workspace_id  TEXT NOT NULL REFERENCES workspaces (id),
    refresh_hash  BYTEA NOT NULL UNIQUE,          -- SHA-256 of the newest refresh token
    created_at    TIMESTAMPTZ NOT NULL,
    expires_at    TIMESTAMPTZ NOT NULL,
    ended_at      TIMESTAMPTZ
);

-- A long-lived bearer for programs.
CREATE TABLE api_keys (
    workspace_id  TEXT NOT NULL REFERENCES workspaces (id),
    id            TEXT NOT NULL,
    name          TEXT NOT NULL,
    role          TEXT NOT NULL,                  -- capped by the maker's current role
    hash          BYTEA NOT NULL UNIQUE,          -- SHA-256 of the key
    last4         TEXT NOT NULL,
    made_by       TEXT NOT NULL REFERENCES users (id),
    created_at    TIMESTAMPTZ NOT NULL,
    expires_at    TIMESTAMPTZ,
    last_used_at  TIMESTAMPTZ,
    revoked_at    TIMESTAMPTZ,
    PRIMARY KEY (workspace_id, id)
);

-- section 0002: to whom

-- A member of the audience.
CREATE TABLE contacts (
    workspace_id  TEXT NOT NULL REFERENCES workspaces (id),
    id            TEXT NOT NULL,
    email         TEXT,
    email_key     TEXT,                           -- case-folded
    phone         TEXT,                           -- E.164
    first_name    TEXT,
    last_name     TEXT,
    timezone      TEXT,
    locale        TEXT,
    metadata      JSONB NOT NULL,                 -- name → scalar
    revision      INTEGER NOT NULL,
    created_at    TIMESTAMPTZ NOT NULL,
    updated_at    TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id),
    UNIQUE (workspace_id, email_key),
    UNIQUE (workspace_id, phone)
);

-- One metadata field of a contact as text, so that a lookup by it uses an index.
CREATE TABLE contact_fields (
    workspace_id  TEXT NOT NULL,
    contact_id    TEXT NOT NULL,
    name          TEXT NOT NULL,
    value         TEXT NOT NULL,
    PRIMARY KEY (workspace_id, contact_id, name),
    FOREIGN KEY (workspace_id, contact_id) REFERENCES contacts (workspace_id, id) ON DELETE CASCADE
);
CREATE INDEX contact_fields_by_value ON contact_fields (workspace_id, name, value, contact_id);

-- A tag on a contact.
CREATE TABLE contact_tags (
    workspace_id  TEXT NOT NULL,
    contact_id    TEXT NOT NULL,
    tag           TEXT NOT NULL,
    PRIMARY KEY (workspace_id, contact_id, tag),
    FOREIGN KEY (workspace_id, contact_id) REFERENCES contacts (workspace_id, id) ON DELETE CASCADE
);
CREATE INDEX contact_tags_by_tag ON contact_tags (workspace_id, tag, contact_id);

-- section 0003: what

-- What a message on one channel says.
CREATE TABLE templates (
    workspace_id  TEXT NOT NULL REFERENCES workspaces (id),
    id            TEXT NOT NULL,
    name          TEXT NOT NULL,
    channel       TEXT NOT NULL,
    category      TEXT NOT NULL,                  -- transactional | marketing
    content       JSONB NOT NULL,
    version       INTEGER NOT NULL,               -- of the content; a delivery attempt records it
    revision      INTEGER NOT NULL,
    created_at    TIMESTAMPTZ NOT NULL,
    updated_at    TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id)
);

-- An automation (graph) or a workflow (steps): what happens when its trigger fires.
CREATE TABLE definitions (
    workspace_id    TEXT NOT NULL REFERENCES workspaces (id),
    id              TEXT NOT NULL,
    shape           TEXT NOT NULL,                -- graph | steps
    name            TEXT NOT NULL,
    state           TEXT NOT NULL,                -- DRAFT | ACTIVE | PAUSED | ARCHIVED
    trigger_config  JSONB NOT NULL,               -- without secret and token
    body            TEXT NOT NULL,                -- the graph or the steps, as JSON with its literals
    version         INTEGER NOT NULL,             -- newest pinned; 0 before the first activation
    signing_secret  BYTEA,                        -- encrypted
    secret_last4    TEXT,
    token           TEXT UNIQUE,                  -- 30 of [A-Za-z0-9], the secret part of the URL
    hidden          BOOLEAN NOT NULL,             -- deleted by a user; its runs stay readable
    revision        INTEGER NOT NULL,
    created_at      TIMESTAMPTZ NOT NULL,
    updated_at      TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id)
);

-- What a definition was when it was activated or changed while active; runs are pinned to one.
CREATE TABLE definition_versions (
    workspace_id    TEXT NOT NULL,
    definition_id   TEXT NOT NULL,
    version         INTEGER NOT NULL,
    trigger_config  JSONB NOT NULL,
    body            TEXT NOT NULL,
    created_at      TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, definition_id, version),
    FOREIGN KEY (workspace_id, definition_id) REFERENCES definitions (workspace_id, id)
);

-- section 0004: what happened

-- One walk of a definition for one contact. The row is also its own job: it is due at wake_at, and
-- whoever claims it raises lease_token and moves wake_at to the end of the lease.
CREATE TABLE runs (
    workspace_id   TEXT NOT NULL,
    id             TEXT NOT NULL,
    definition_id  TEXT NOT NULL,
    version        INTEGER NOT NULL,
    contact_id     TEXT NOT NULL,                 -- no foreign key: a run outlives an erased contact
    status         TEXT NOT NULL,                 -- QUEUED | RUNNING | WAITING | COMPLETED | FAILED | CANCELLED
    reason_code    TEXT,
    reason_detail  TEXT,
    body           BYTEA NOT NULL,                -- the trigger's bytes, as received
    state          TEXT,                          -- the machine's State, as JSON; NULL before the first step
    waiting_for    JSONB,                         -- {"kind": "time", "until"} | {"kind": "delivery", "messageId"}
    wake_at        TIMESTAMPTZ,                   -- NULL: nothing to do until somebody sets it
    lease_token    INTEGER NOT NULL,              -- fences every write of a claim
    claims         INTEGER NOT NULL,              -- without progress; the fifth is the last
    created_at     TIMESTAMPTZ NOT NULL,
    started_at     TIMESTAMPTZ,
    finished_at    TIMESTAMPTZ,
    PRIMARY KEY (workspace_id, id),
    FOREIGN KEY (workspace_id, definition_id, version)
        REFERENCES definition_versions (workspace_id, definition_id, version)
);
CREATE INDEX runs_due ON runs (wake_at, id) WHERE wake_at IS NOT NULL;
CREATE INDEX runs_due_by_workspace ON runs (workspace_id, wake_at, id) WHERE wake_at IS NOT NULL;
CREATE INDEX runs_by_definition ON runs (workspace_id, definition_id, id);
CREATE INDEX runs_by_contact ON runs (workspace_id, contact_id, id);
CREATE INDEX runs_by_status ON runs (workspace_id, status, id);

-- One visit of one node, as a person reads it.
CREATE TABLE run_steps (
    workspace_id   TEXT NOT NULL,
    run_id         TEXT NOT NULL,
    node_id        TEXT NOT NULL,
    visit          INTEGER NOT NULL,
    position       INTEGER NOT NULL,              -- in the order of the walk
    kind           TEXT NOT NULL,
    status         TEXT NOT NULL,                 -- COMPLETED | WAITING | FAILED
    reason_code    TEXT,
    reason_detail  TEXT,
    port           TEXT,                          -- the exit taken
    output         TEXT,                          -- JSON with its literals
    started_at     TIMESTAMPTZ NOT NULL,
    finished_at    TIMESTAMPTZ,
    PRIMARY KEY (workspace_id, run_id, node_id, visit),
    FOREIGN KEY (workspace_id, run_id) REFERENCES runs (workspace_id, id) ON DELETE CASCADE
);

-- One message to one recipient. Like a run it is its own job: due at wake_at, fenced by lease_token.
CREATE TABLE messages (
    workspace_id      TEXT NOT NULL REFERENCES workspaces (id),
    id                TEXT NOT NULL,
    run_id            TEXT,
    node_id           TEXT,
    visit             INTEGER,
    contact_id        TEXT,
    template_id       TEXT,
    template_version  INTEGER,                    -- the one rendered, known from the intent on
    channel           TEXT NOT NULL,
    category          TEXT NOT NULL,
    to_address        TEXT,                       -- NULL until the intent when it is the contact's own
    source            TEXT NOT NULL,              -- JSON: {"content"} when inline, {"data"} for a direct message
    content           TEXT,                       -- JSON: as rendered, from the intent on
    status            TEXT NOT NULL,              -- its newest attempt's
    reason_code       TEXT,
    reason_detail     TEXT,
    wake_at           TIMESTAMPTZ,
    lease_token       INTEGER NOT NULL,
    claims            INTEGER NOT NULL,           -- without an outcome; the fifth is the last
    created_at        TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id),
    UNIQUE (workspace_id, run_id, node_id, visit)
);
CREATE INDEX messages_due ON messages (wake_at, id) WHERE wake_at IS NOT NULL;
CREATE INDEX messages_due_by_workspace ON messages (workspace_id, wake_at, id) WHERE wake_at IS NOT NULL;
CREATE INDEX messages_by_contact ON messages (workspace_id, contact_id, id);
CREATE INDEX messages_by_status ON messages (workspace_id, status, id);

-- One attempt to hand a message to a provider. Automatic retries of what was surely not accepted
-- stay within the attempt; only a resend makes another.
CREATE TABLE delivery_attempts (
    workspace_id         TEXT NOT NULL,
    id                   TEXT NOT NULL,
    message_id           TEXT NOT NULL,
    number               INTEGER NOT NULL,
    message_key          TEXT NOT NULL UNIQUE,    -- deterministic; also the Message-ID's local part
    provider             TEXT,
    status               TEXT NOT NULL,           -- QUEUED | SENDING | SENT | … (house of delivery)
    reason_code          TEXT,
    reason_detail        TEXT,
    provider_message_id  TEXT,
    tries                INTEGER NOT NULL,        -- calls made under this attempt
    events               JSONB NOT NULL,          -- [{"at", "status", "code", "detail"}]
    created_at           TIMESTAMPTZ NOT NULL,
    sent_at              TIMESTAMPTZ,
    finished_at          TIMESTAMPTZ,
    PRIMARY KEY (workspace_id, id),
    UNIQUE (workspace_id, message_id, number),
    FOREIGN KEY (workspace_id, message_id) REFERENCES messages (workspace_id, id) ON DELETE CASCADE
);
CREATE INDEX delivery_attempts_by_status ON delivery_attempts (workspace_id, status, id);

-- A message that the sandbox captured instead of sending it.
CREATE TABLE captured_messages (
    workspace_id   TEXT NOT NULL REFERENCES workspaces (id),
    id             TEXT NOT NULL,
    message_key    TEXT NOT NULL UNIQUE,          -- the second capture of one attempt is the first
    message_id     TEXT NOT NULL,
    attempt_id     TEXT NOT NULL,
    run_id         TEXT,
    contact_id     TEXT,
    channel        TEXT NOT NULL,
    to_address     TEXT NOT NULL,
    from_address   TEXT,
    subject        TEXT,
    text           TEXT NOT NULL,
    html           TEXT,
    headers        JSONB NOT NULL,
    captured_at    TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id)
);
CREATE INDEX captured_messages_by_to ON captured_messages (workspace_id, lower(to_address), id);
CREATE INDEX captured_messages_by_run ON captured_messages (workspace_id, run_id, id);

-- section 0005: what was asked before

-- The answer to a POST with an Idempotency-Key, which its copies get again for a day.
CREATE TABLE idempotency_keys (
    workspace_id  TEXT NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    id            BYTEA NOT NULL,                 -- keyed hash of method, path and key
    asked         BYTEA NOT NULL,                 -- keyed hash of query and body
    only_for      TEXT,                           -- the bearer who alone sees a secret again
    answer        BYTEA NOT NULL,                 -- encrypted
    expires_at    TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id)
);
CREATE INDEX idempotency_keys_by_expiry ON idempotency_keys (expires_at);

-- section 0006: who may come in, and out

-- A role in a workspace offered to an email address; whoever reads mail there takes it, once.
CREATE TABLE invitations (
    workspace_id  TEXT NOT NULL REFERENCES workspaces (id),
    id            TEXT NOT NULL,
    email         TEXT NOT NULL,
    email_key     TEXT NOT NULL,                  -- case-folded
    role          TEXT NOT NULL,                  -- worth what its inviter may still grant
    hash          BYTEA NOT NULL UNIQUE,          -- SHA-256 of the token
    invited_by    TEXT NOT NULL REFERENCES users (id),
    created_at    TIMESTAMPTZ NOT NULL,
    expires_at    TIMESTAMPTZ NOT NULL,
    accepted_at   TIMESTAMPTZ,
    revoked_at    TIMESTAMPTZ,
    PRIMARY KEY (workspace_id, id)
);
CREATE UNIQUE INDEX invitations_pending ON invitations (workspace_id, email_key)
    WHERE accepted_at IS NULL AND revoked_at IS NULL;
CREATE INDEX invitations_by_email ON invitations (email_key, id);

-- When it was proved that they read mail at their address.
ALTER TABLE users ADD COLUMN email_verified_at TIMESTAMPTZ;
CREATE INDEX sessions_by_user ON sessions (user_id, id);
CREATE INDEX sessions_by_workspace ON sessions (workspace_id, id);

-- Its owner deleted it: nothing of it acts any more, and its rows are on their way out.
ALTER TABLE workspaces ADD COLUMN deleted_at TIMESTAMPTZ;
CREATE INDEX workspaces_deleted ON workspaces (id) WHERE deleted_at IS NOT NULL;

-- Mail about an account goes out as every message does, but is not for every member to read.
ALTER TABLE messages ADD COLUMN account_mail TEXT;  -- invitation | password_reset | email_verification
ALTER TABLE messages ADD COLUMN addressee_id TEXT;  -- the user who alone may read it
ALTER TABLE messages ADD COLUMN sealed BYTEA;       -- its source, encrypted, until it has gone out
ALTER TABLE captured_messages ADD COLUMN account_mail TEXT;
ALTER TABLE captured_messages ADD COLUMN addressee_id TEXT;

-- section 0007: how contacts are found

-- Case-folded, for searches by how a name begins.
ALTER TABLE contacts ADD COLUMN name_key TEXT;        -- first and last name
ALTER TABLE contacts ADD COLUMN last_name_key TEXT;
UPDATE contacts
SET name_key = lower(trim(COALESCE(first_name, '') || ' ' || COALESCE(last_name, ''))),
    last_name_key = lower(last_name)
WHERE first_name IS NOT NULL OR last_name IS NOT NULL;

-- Ordered by code point, whatever the database's collation: what begins alike stands together.
CREATE INDEX contacts_by_email_start ON contacts (workspace_id, email_key text_pattern_ops);
CREATE INDEX contacts_by_name_start ON contacts (workspace_id, name_key text_pattern_ops);
CREATE INDEX contacts_by_last_name_start ON contacts (workspace_id, last_name_key text_pattern_ops);
CREATE INDEX contacts_by_update ON contacts (workspace_id, updated_at, id);
CREATE INDEX captured_messages_by_contact ON captured_messages (workspace_id, contact_id, id);
