-- Tidings' data, in the order of the story: people and workspaces, what they define, the contacts, what
-- comes in and runs, what goes out, who else is notified, and what keeps the service in order.
--
-- One text for PostgreSQL and SQLite. Numbered sections are applied once, in order, and recorded in
-- schema_migrations. Until 1.0.0 is released they are edited in place; from then on an applied section
-- never changes: append a new one. A deploy runs old and new code side by side, so a change expands
-- first and contracts a release later.
--
-- The data can be sharded by workspace: every table of a workspace starts with workspace_id, and its
-- primary key, its unique constraints and its foreign keys begin with it. What is found before the
-- workspace is known is in a small table of its own (directory, sign_in_domains). Columns that name a
-- user have no foreign key: users belong to no workspace. Ids are time-ordered; times are UTC.

-- section 0001: people and workspaces

-- A person who can sign in. Nobody is ever deleted.
CREATE TABLE users (
    id                 TEXT PRIMARY KEY,
    email              TEXT NOT NULL,
    email_key          TEXT NOT NULL UNIQUE,      -- in lower case
    name               TEXT NOT NULL,
    password_hash      TEXT NOT NULL,             -- argon2id
    super_admin        BOOLEAN NOT NULL,
    created_at         TIMESTAMPTZ NOT NULL,
    email_verified_at  TIMESTAMPTZ                -- when they proved that they read mail at the address
);

-- The user that a subject of a single sign-on provider stands for.
CREATE TABLE user_identities (
    issuer      TEXT NOT NULL,
    subject     TEXT NOT NULL,
    user_id     TEXT NOT NULL REFERENCES users (id),
    created_at  TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (issuer, subject),
    UNIQUE (issuer, user_id)
);
CREATE INDEX user_identities_by_user ON user_identities (user_id);

-- How many workspaces a user founded on the newest day that they founded one (UTC). No foreign key:
-- it would lock one more row.
CREATE TABLE foundings (
    user_id  TEXT PRIMARY KEY,
    day      TEXT NOT NULL,
    amount   INTEGER NOT NULL
);

-- A tenant: nearly everything below belongs to exactly one.
CREATE TABLE workspaces (
    id              TEXT PRIMARY KEY,
    name            TEXT NOT NULL,
    timezone        TEXT NOT NULL,
    country         TEXT,                         -- ISO 3166-1; reads national phone numbers
    suspended       BOOLEAN NOT NULL,             -- by the operator
    revision        INTEGER NOT NULL,
    created_at      TIMESTAMPTZ NOT NULL,
    updated_at      TIMESTAMPTZ NOT NULL,
    deleted_at      TIMESTAMPTZ,                  -- by its owner: nothing acts any more, its rows are going
    retention_days  INTEGER,                      -- NULL: the operator's setting
    from_name       TEXT,                         -- of its mail, where the content has none; NULL: the
    from_email      TEXT,                         -- operator's
    reply_to        TEXT,
    postal_address  TEXT,                         -- in the footer of marketing mail; lines end in line feeds
    frequency_cap   JSONB,                        -- {"limit", "window", "channel"?}; NULL: none
    quiet_hours     JSONB,                        -- {"from", "to", "timezone", "channels", "days", "maxWait"?}
    sending_paused  BOOLEAN NOT NULL DEFAULT FALSE,  -- its messages are parked until it sends again
    plan            TEXT NOT NULL DEFAULT 'starter',  -- the one that is paid for, if any is
    daily_limit     INTEGER                       -- of messages through the operator's channels; NULL: the
                                                  -- rule for new workspaces
);
CREATE INDEX workspaces_deleted ON workspaces (id) WHERE deleted_at IS NOT NULL;

-- Which workspace a token, a key or a customer belongs to, and which row there: read first, so that
-- the next statement can name the workspace. Written and deleted in the transaction of that row. What
-- we draw for people and providers ourselves needs no entry: such a token begins with its workspace.
CREATE TABLE directory (
    kind          TEXT NOT NULL,                  -- webhook | api_key | customer
    key           TEXT NOT NULL,                  -- the token, the key's SHA-256, the provider's customer id
    workspace_id  TEXT NOT NULL,
    id            TEXT NOT NULL,                  -- of the definition, the API key, the workspace
    PRIMARY KEY (kind, key)
);
CREATE INDEX directory_by_workspace ON directory (workspace_id, kind, id);

-- Whoever comes by single sign-on with a verified address of the domain, and belongs nowhere yet,
-- becomes a member of the workspace. A domain belongs to one workspace at most.
CREATE TABLE sign_in_domains (
    domain        TEXT PRIMARY KEY,               -- in lower case and ASCII, as in email_key
    workspace_id  TEXT NOT NULL,
    role          TEXT NOT NULL,                  -- viewer | editor
    claimed_by    TEXT NOT NULL,                  -- a user
    created_at    TIMESTAMPTZ NOT NULL
);
CREATE INDEX sign_in_domains_by_workspace ON sign_in_domains (workspace_id, domain);

-- A user's role in a workspace.
CREATE TABLE memberships (
    workspace_id  TEXT NOT NULL REFERENCES workspaces (id),
    id            TEXT NOT NULL,
    user_id       TEXT NOT NULL,
    role          TEXT NOT NULL,
    sends_broadcasts BOOLEAN NOT NULL DEFAULT FALSE,  -- as an editor, too
    revision      INTEGER NOT NULL DEFAULT 1,
    created_at    TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id),
    UNIQUE (workspace_id, user_id)
);
CREATE INDEX memberships_by_user ON memberships (user_id, id);

-- A role in a workspace offered to an email address; whoever reads mail there accepts it, once.
CREATE TABLE invitations (
    workspace_id  TEXT NOT NULL REFERENCES workspaces (id),
    id            TEXT NOT NULL,
    email         TEXT NOT NULL,
    email_key     TEXT NOT NULL,                  -- in lower case
    role          TEXT NOT NULL,                  -- worth what its inviter may still grant
    hash          BYTEA NOT NULL,                 -- SHA-256 of the token
    invited_by    TEXT NOT NULL,                  -- a user
    created_at    TIMESTAMPTZ NOT NULL,
    expires_at    TIMESTAMPTZ NOT NULL,
    accepted_at   TIMESTAMPTZ,
    revoked_at    TIMESTAMPTZ,
    PRIMARY KEY (workspace_id, id),
    UNIQUE (workspace_id, hash)
);
CREATE UNIQUE INDEX invitations_pending ON invitations (workspace_id, email_key)
    WHERE accepted_at IS NULL AND revoked_at IS NULL;
CREATE INDEX invitations_by_email ON invitations (email_key, id);

-- One sign-in, acting in one workspace; ends by log-out, when a refresh token is used twice, or when
-- its user has begun many more there.
CREATE TABLE sessions (
    workspace_id  TEXT NOT NULL REFERENCES workspaces (id),
    id            TEXT NOT NULL,
    user_id       TEXT NOT NULL,
    refresh_hash  BYTEA NOT NULL,                 -- SHA-256 of the newest refresh token
    created_at    TIMESTAMPTZ NOT NULL,
    expires_at    TIMESTAMPTZ NOT NULL,
    ended_at      TIMESTAMPTZ,
    -- Of a browser, whose refresh token is in a cookie: all its tabs have the same one, and may send
    -- the one before shortly after it was renewed.
    in_cookie     BOOLEAN NOT NULL DEFAULT FALSE,
    previous_hash BYTEA,                          -- SHA-256 of the refresh token before
    renewed_at    TIMESTAMPTZ,
    PRIMARY KEY (workspace_id, id)
);
CREATE INDEX sessions_open ON sessions (workspace_id, user_id, id) WHERE ended_at IS NULL;
CREATE INDEX sessions_by_expiry ON sessions (expires_at);

-- A long-lived bearer for programs.
CREATE TABLE api_keys (
    workspace_id  TEXT NOT NULL REFERENCES workspaces (id),
    id            TEXT NOT NULL,
    name          TEXT NOT NULL,
    role          TEXT NOT NULL,                  -- capped by the maker's current role
    hash          BYTEA NOT NULL,                 -- SHA-256 of the key
    last4         TEXT NOT NULL,
    made_by       TEXT NOT NULL,                  -- a user
    created_at    TIMESTAMPTZ NOT NULL,
    expires_at    TIMESTAMPTZ,
    last_used_at  TIMESTAMPTZ,
    revoked_at    TIMESTAMPTZ,
    PRIMARY KEY (workspace_id, id)
);

-- section 0002: definitions

-- The content of messages on one channel.
CREATE TABLE templates (
    workspace_id  TEXT NOT NULL REFERENCES workspaces (id),
    id            TEXT NOT NULL,
    name          TEXT NOT NULL,
    channel       TEXT NOT NULL,
    category      TEXT NOT NULL,                  -- transactional | marketing
    topic_id      TEXT,                           -- of marketing; NULL: the default topic
    content       JSONB NOT NULL,
    version       INTEGER NOT NULL,               -- of the content; a message records it
    key           TEXT,                           -- its name in files; NULL: it came from none
    revision      INTEGER NOT NULL,
    created_at    TIMESTAMPTZ NOT NULL,
    updated_at    TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id),
    UNIQUE (workspace_id, key)
);
CREATE INDEX templates_by_update ON templates (workspace_id, updated_at, id);

-- An automation (graph) or a workflow (steps): what happens when its trigger fires.
CREATE TABLE definitions (
    workspace_id    TEXT NOT NULL REFERENCES workspaces (id),
    id              TEXT NOT NULL,
    shape           TEXT NOT NULL,                -- graph | steps
    name            TEXT NOT NULL,
    state           TEXT NOT NULL,                -- DRAFT | ACTIVE | PAUSED | ARCHIVED
    trigger_config  JSONB NOT NULL,               -- without secret and token
    mentions        TEXT NOT NULL DEFAULT '',     -- ids of templates, topics and segments that its body
                                                  -- names, each in quotes; before it, which is long
    body            TEXT NOT NULL,                -- the graph or the steps, as JSON with its literals
    version         INTEGER NOT NULL,             -- newest pinned; 0 before the first activation
    signing_secret  BYTEA,                        -- encrypted
    secret_last4    TEXT,
    token           TEXT,                         -- 30 of [A-Za-z0-9], the secret part of the URL
    key             TEXT,                         -- its file's name; NULL: it came from none
    beside          TEXT,                         -- what else its file says: JSON with its literals
    hidden          BOOLEAN NOT NULL,             -- deleted by a user; its runs stay readable
    cases_gate      BOOLEAN NOT NULL DEFAULT FALSE,  -- a case that fails prevents its activation
    ending          BOOLEAN NOT NULL DEFAULT FALSE,  -- ARCHIVED, and some runs have not ended
    deactivated_at  TIMESTAMPTZ,                  -- NULL while it is ACTIVE, and before it ever was
    unwatched_since TIMESTAMPTZ,                  -- PAUSED: its dates and times since then are missed
    revision        INTEGER NOT NULL,
    created_at      TIMESTAMPTZ NOT NULL,
    updated_at      TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id)
);
CREATE INDEX definitions_ending ON definitions (workspace_id, id) WHERE ending;
CREATE INDEX definitions_by_source ON definitions (workspace_id, (trigger_config ->> 'source'))
    WHERE state = 'ACTIVE';
CREATE INDEX definitions_paused ON definitions (workspace_id, (trigger_config ->> 'source'))
    WHERE state = 'PAUSED';
CREATE UNIQUE INDEX definitions_by_key ON definitions (workspace_id, key)
    WHERE key IS NOT NULL AND state <> 'ARCHIVED';
CREATE INDEX definitions_by_update ON definitions (workspace_id, updated_at, id);

-- A definition as it was when it was activated or changed while active; runs are pinned to one.
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

-- What must come of a definition: simulated whenever it is checked; at most twenty of each.
CREATE TABLE definition_cases (
    workspace_id   TEXT NOT NULL,
    definition_id  TEXT NOT NULL,
    name           TEXT NOT NULL,
    given          TEXT NOT NULL,                 -- the input of a simulation, as JSON with its literals
    expect         TEXT NOT NULL,                 -- a part of the trace, likewise
    revision       INTEGER NOT NULL,
    created_at     TIMESTAMPTZ NOT NULL,
    updated_at     TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, definition_id, name),
    FOREIGN KEY (workspace_id, definition_id) REFERENCES definitions (workspace_id, id)
);

-- section 0003: contacts and consent

-- A subject of marketing that people say yes to, channel by channel. The default topic is only a
-- name for the channels' subscriptions: whoever is subscribed to a channel gets it.
CREATE TABLE topics (
    workspace_id   TEXT NOT NULL REFERENCES workspaces (id),
    id             TEXT NOT NULL,
    name           TEXT NOT NULL,
    description    TEXT,
    channels       JSONB NOT NULL,                -- [email | sms | whatsapp]
    double_opt_in  BOOLEAN NOT NULL,              -- a yes counts once it was confirmed by a link
    is_default     BOOLEAN NOT NULL,
    revision       INTEGER NOT NULL,
    created_at     TIMESTAMPTZ NOT NULL,
    updated_at     TIMESTAMPTZ NOT NULL,
    forgotten_up_to TEXT,                         -- of a deleted one, which nobody sees: what contacts up to
                                                  -- this one have answered is forgotten
    PRIMARY KEY (workspace_id, id)
);
CREATE UNIQUE INDEX topics_default ON topics (workspace_id) WHERE is_default;
CREATE INDEX topics_deleted ON topics (workspace_id, id) WHERE forgotten_up_to IS NOT NULL;

-- A member of the audience.
CREATE TABLE contacts (
    workspace_id   TEXT NOT NULL REFERENCES workspaces (id),
    id             TEXT NOT NULL,
    email          TEXT,
    email_key      TEXT,                          -- in lower case
    phone          TEXT,                          -- E.164
    first_name     TEXT,
    last_name      TEXT,
    name_key       TEXT,                          -- first and last name, case-folded: for searches by how
    last_name_key  TEXT,                          -- a name begins
    timezone       TEXT,
    locale         TEXT,
    metadata       JSONB NOT NULL,                -- name → scalar
    subscriptions  JSONB NOT NULL DEFAULT '{}',   -- channel → unsubscribed | bounced | complained; absent:
                                                  -- subscribed
    topics         JSONB NOT NULL DEFAULT '{}',   -- topic → channel → subscribed | pending |
                                                  -- unsubscribed; absent: never asked
    revision       INTEGER NOT NULL,
    created_at     TIMESTAMPTZ NOT NULL,
    updated_at     TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id),
    UNIQUE (workspace_id, email_key),
    UNIQUE (workspace_id, phone)
);
-- Ordered by code point, whatever the database's collation: what begins alike stands together.
CREATE INDEX contacts_by_email_start ON contacts (workspace_id, email_key text_pattern_ops);
CREATE INDEX contacts_by_name_start ON contacts (workspace_id, name_key text_pattern_ops);
CREATE INDEX contacts_by_last_name_start ON contacts (workspace_id, last_name_key text_pattern_ops);
CREATE INDEX contacts_by_update ON contacts (workspace_id, updated_at, id);

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

-- An address that a contact had once. When the contact is erased, what was kept under it goes too;
-- nothing else reads it.
CREATE TABLE former_addresses (
    workspace_id  TEXT NOT NULL,
    contact_id    TEXT NOT NULL,
    address       TEXT NOT NULL,                  -- as the contact had it
    email_key     TEXT,                           -- as contacts are compared, like
    phone         TEXT,                           -- this one: NULL is what it is not
    PRIMARY KEY (workspace_id, contact_id, address),
    FOREIGN KEY (workspace_id, contact_id) REFERENCES contacts (workspace_id, id) ON DELETE CASCADE
);

-- Something that a contact did, reported by a client of the API.
CREATE TABLE contact_events (
    workspace_id  TEXT NOT NULL,
    id            TEXT NOT NULL,
    contact_id    TEXT NOT NULL,
    name          TEXT NOT NULL,
    properties    TEXT NOT NULL,                  -- JSON with its literals
    at            TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id),
    FOREIGN KEY (workspace_id, contact_id) REFERENCES contacts (workspace_id, id) ON DELETE CASCADE
);
CREATE INDEX contact_events_by_contact ON contact_events (workspace_id, contact_id, id);

-- A rule by which contacts belong together: those who fit the filter are in it.
CREATE TABLE segments (
    workspace_id  TEXT NOT NULL REFERENCES workspaces (id),
    id            TEXT NOT NULL,
    name          TEXT NOT NULL,
    kind          TEXT NOT NULL,                  -- live | frozen: as it was when it was filled;
                                                  -- date | schedule: a watch
    filter        TEXT NOT NULL,                  -- JSON with its literals
    revision      INTEGER NOT NULL,
    created_at    TIMESTAMPTZ NOT NULL,
    updated_at    TIMESTAMPTZ NOT NULL,
    -- A filter that is new is judged for everybody by the segment's job: for contacts up to fill_to,
    -- so far up to filled_up_to. The second look half a minute later sets fill_to to its own end.
    state         TEXT NOT NULL,                  -- filling | filled | removing
    saved_at      TIMESTAMPTZ NOT NULL,           -- the filter
    starts        BOOLEAN NOT NULL,               -- whoever the fill finds has entered
    fill_to       TEXT NOT NULL,
    filled_up_to  TEXT NOT NULL,
    filled_at     TIMESTAMPTZ,
    rechecked     BOOLEAN NOT NULL,               -- those who were being created when it was saved,
    rechecked_up_to TEXT,                         -- so far up to this one
    reason_code   TEXT,                           -- poisoned: its job is set aside until it is saved again
    -- A watch, which nobody sees: for the dates and times after saved_at of a definition, whose
    -- trigger is its filter. A schedule is due then, and has started runs for members up to
    -- filled_up_to. One that has ended starts none: what it has not started up to then is recorded as
    -- missed, for that reason.
    definition_id TEXT,
    due_at        TIMESTAMPTZ,
    missed        TEXT,                           -- late | inactive | stopped | restored
    ended_at      TIMESTAMPTZ,
    PRIMARY KEY (workspace_id, id)
);
CREATE INDEX segments_by_definition ON segments (workspace_id, definition_id)
    WHERE definition_id IS NOT NULL;
CREATE INDEX segments_given_up ON segments (workspace_id, id) WHERE reason_code IS NOT NULL;

-- Something that a live segment's answer depends on, by which a change finds those to judge again.
CREATE TABLE segment_names (
    workspace_id  TEXT NOT NULL,
    name          TEXT NOT NULL,                  -- of machine/segment_changes.py
    segment_id    TEXT NOT NULL,
    PRIMARY KEY (workspace_id, name, segment_id),
    FOREIGN KEY (workspace_id, segment_id) REFERENCES segments (workspace_id, id) ON DELETE CASCADE
);
CREATE INDEX segment_names_by_segment ON segment_names (workspace_id, segment_id);

-- Whether a contact is in a segment, and when time alone may change that. A contact without a row is
-- not, and stays so. Written under the contact's lock alone, and deleted with the contact; no foreign
-- key, which would cost the fill of a segment a look at each contact.
CREATE TABLE segment_members (
    workspace_id  TEXT NOT NULL,
    contact_id    TEXT NOT NULL,
    segment_id    TEXT NOT NULL,
    member        BOOLEAN NOT NULL,
    next_at       TIMESTAMPTZ,
    PRIMARY KEY (workspace_id, contact_id, segment_id)
);
CREATE INDEX segment_members_by_segment ON segment_members (workspace_id, segment_id, contact_id);
CREATE INDEX segment_members_by_time ON segment_members (workspace_id, segment_id, next_at)
    WHERE next_at IS NOT NULL;

-- A contact's date that has come and has started its run; kept for as long as that may start late, at
-- the least: until another one of the contact starts. No foreign key to definitions, whose rows are locked
-- before watches are.
CREATE TABLE date_occasions (
    workspace_id  TEXT NOT NULL,
    contact_id    TEXT NOT NULL,
    definition_id TEXT NOT NULL,
    at            TIMESTAMPTZ NOT NULL,
    value         TEXT,                           -- what was read, so many years later: it comes once in whatever time zone
    PRIMARY KEY (workspace_id, contact_id, definition_id, at),
    FOREIGN KEY (workspace_id, contact_id) REFERENCES contacts (workspace_id, id) ON DELETE CASCADE
);

-- What started no run: a contact's date, times of a schedule for a member of its segment, or an entry
-- or exit. For the explanation of that; kept for as long as runs are.
CREATE TABLE missed_occasions (
    workspace_id  TEXT NOT NULL,
    id            TEXT NOT NULL,
    definition_id TEXT NOT NULL,
    contact_id    TEXT NOT NULL,
    source        TEXT NOT NULL,                  -- of the trigger
    reason        TEXT NOT NULL,                  -- late | inactive | stopped | filling | restored
    at            TIMESTAMPTZ NOT NULL,           -- the first,
    until         TIMESTAMPTZ NOT NULL,           -- and up to then every later one
    PRIMARY KEY (workspace_id, id),
    FOREIGN KEY (workspace_id, contact_id) REFERENCES contacts (workspace_id, id) ON DELETE CASCADE
);
CREATE UNIQUE INDEX missed_occasions_by_contact
    ON missed_occasions (workspace_id, contact_id, definition_id, at);

-- A contact that is to be judged again for a segment by its job: it could not be locked, or whoever
-- changed something had no lock of it, or had too many to judge.
CREATE TABLE segment_touches (
    workspace_id  TEXT NOT NULL,
    segment_id    TEXT NOT NULL,
    id            TEXT NOT NULL,
    contact_id    TEXT NOT NULL,
    PRIMARY KEY (workspace_id, segment_id, id),
    FOREIGN KEY (workspace_id, segment_id) REFERENCES segments (workspace_id, id) ON DELETE CASCADE
);

-- A contact wanted to be written to no more, or again; or seems to: somebody should read it. Of a
-- channel as a whole, or of one topic there.
CREATE TABLE consent_events (
    workspace_id  TEXT NOT NULL,
    id            TEXT NOT NULL,
    contact_id    TEXT NOT NULL,
    channel       TEXT NOT NULL,
    topic_id      TEXT,                           -- NULL: the channel
    kind          TEXT NOT NULL,                  -- opted_out | asked | opted_in | flagged
    reason        TEXT,                           -- a suppression's
    source        TEXT NOT NULL,
    evidence      TEXT,                           -- the words, the form or the file, as was said
    in_flight     JSONB,                          -- of leaving a topic: ids of messages that may still arrive
    at            TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id),
    FOREIGN KEY (workspace_id, contact_id) REFERENCES contacts (workspace_id, id) ON DELETE CASCADE
);
CREATE INDEX consent_events_by_contact ON consent_events (workspace_id, contact_id, id);

-- An address that is not to be written to, for one of several reasons. It outlives its contact: of
-- an erased one the keyed hash is left, which reveals nothing and is still found.
CREATE TABLE suppressions (
    workspace_id  TEXT NOT NULL REFERENCES workspaces (id),
    id            TEXT NOT NULL,
    channel       TEXT NOT NULL,
    address_hash  TEXT NOT NULL,                  -- of workspace, channel and address; hexadecimal
    address       TEXT,                           -- NULL once erased
    reason        TEXT NOT NULL,                  -- unsubscribed | bounced | complained | stopped | manual | erased
    source        TEXT NOT NULL,
    in_flight     JSONB NOT NULL,                 -- ids of messages that may still arrive
    created_at    TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id),
    UNIQUE (workspace_id, address_hash, reason)
);

-- How often in a row mail to an address has bounced softly.
CREATE TABLE soft_bounces (
    workspace_id  TEXT NOT NULL REFERENCES workspaces (id),
    address_hash  TEXT NOT NULL,
    bounces       INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, address_hash)
);

-- section 0004: webhooks, runs and jobs

-- One request to a webhook URL that was known, and its answer: the newest 1,000 of a definition, for
-- seven days. No foreign keys here: they would cost every event a look at each.
CREATE TABLE webhook_requests (
    workspace_id   TEXT NOT NULL,
    id             TEXT NOT NULL,
    definition_id  TEXT NOT NULL,
    outcome        TEXT NOT NULL,                 -- ACCEPTED | REPEATED | REFUSED
    status         INTEGER NOT NULL,              -- of the answer
    code           TEXT,                          -- of the problem, when REFUSED
    cause          TEXT,                          -- of a 401: missing | malformed | wrong | reserialised
    detail         TEXT,                          -- what was refused and why, or what was noted
    headers        JSONB NOT NULL,                -- name → value, secrets masked
    body           BYTEA,                         -- at most 64 KiB; NULL unless REFUSED: the run has it
    ip             TEXT NOT NULL,
    duration_ms    INTEGER NOT NULL,              -- until this was written down
    run_id         TEXT,                          -- the one started, or the first of a repeat
    contact_id     TEXT,
    looked_up      TEXT,                          -- keyed hash of whom a REFUSED one was about, where its
                                                  -- body names somebody; hexadecimal
    created_at     TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id)
);
CREATE INDEX webhook_requests_by_definition ON webhook_requests (workspace_id, definition_id, id);
CREATE INDEX webhook_requests_by_code ON webhook_requests (workspace_id, definition_id, code, id)
    WHERE code IS NOT NULL;
CREATE INDEX webhook_requests_by_contact ON webhook_requests (workspace_id, contact_id, id)
    WHERE contact_id IS NOT NULL;
CREATE INDEX webhook_requests_by_lookup ON webhook_requests (workspace_id, looked_up, id)
    WHERE looked_up IS NOT NULL;

-- The answer to an event, for its copies: for a day they are given the same ids.
CREATE TABLE receipts (
    workspace_id  TEXT NOT NULL,
    id            BYTEA NOT NULL,                 -- keyed hash of definition, kind of key and value; or
                                                  -- of what a client of the API calls a contact's event
    run_id        TEXT NOT NULL,                  -- what was made: a run, or that event
    contact_id    TEXT NOT NULL,
    expires_at    TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id)
);
CREATE INDEX receipts_by_expiry ON receipts (expires_at);

-- One walk of a definition for one contact.
CREATE TABLE runs (
    workspace_id   TEXT NOT NULL,
    id             TEXT NOT NULL,
    definition_id  TEXT NOT NULL,
    version        INTEGER NOT NULL,
    contact_id     TEXT NOT NULL,                 -- no foreign key: a run outlives an erased contact
    status         TEXT NOT NULL,                 -- QUEUED | RUNNING | WAITING | COMPLETED | FAILED | CANCELLED
    reason_code    TEXT,
    reason_detail  TEXT,
    blocked_by     TEXT,                          -- the run because of which it was not let in
    body           BYTEA NOT NULL,                -- the trigger's bytes, as received
    depth          INTEGER NOT NULL DEFAULT 0,    -- of the chain of runs that started it
    root           TEXT,                          -- the run that its chain began with; NULL in that run
                                                  -- itself, and in one that no other has started
    state          TEXT,                          -- the machine's State, as JSON; NULL before the first step
    waiting_for    JSONB,                         -- {"kind": "time" | "delivery" | "http" | "event", …}
    created_at     TIMESTAMPTZ NOT NULL,
    started_at     TIMESTAMPTZ,
    finished_at    TIMESTAMPTZ,
    PRIMARY KEY (workspace_id, id),
    FOREIGN KEY (workspace_id, definition_id, version)
        REFERENCES definition_versions (workspace_id, definition_id, version)
);
CREATE INDEX runs_by_definition ON runs (workspace_id, definition_id, id);
CREATE INDEX runs_by_contact ON runs (workspace_id, contact_id, id);
CREATE INDEX runs_by_status ON runs (workspace_id, status, id);
-- A look for a run by its id must not name its condition in these words: while statistics say that
-- none waits, it would walk all that do.
CREATE INDEX runs_unfinished ON runs (workspace_id, definition_id, id) WHERE finished_at IS NULL;
CREATE INDEX runs_listening ON runs (workspace_id, contact_id) WHERE waiting_for ->> 'kind' = 'event';
-- For retention: everything else is found by its id, which contains its age.
CREATE INDEX runs_finished ON runs (workspace_id, finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX runs_by_root ON runs (workspace_id, root) WHERE root IS NOT NULL;
-- Over all workspaces the newest of each status, for the operator.
CREATE INDEX runs_of_status ON runs (status, id);

-- A run that was let into a definition which limits re-entry. It outlives the run: of those that have
-- ended, the newest is kept.
CREATE TABLE definition_entries (
    workspace_id   TEXT NOT NULL,
    definition_id  TEXT NOT NULL,
    contact_id     TEXT NOT NULL,
    run_id         TEXT NOT NULL,
    entered_at     TIMESTAMPTZ NOT NULL,          -- when the run came
    PRIMARY KEY (workspace_id, definition_id, contact_id, run_id),
    FOREIGN KEY (workspace_id, contact_id) REFERENCES contacts (workspace_id, id) ON DELETE CASCADE
);
CREATE INDEX definition_entries_by_contact ON definition_entries (workspace_id, contact_id);

-- One visit of one node, as a person reads it.
CREATE TABLE run_steps (
    workspace_id   TEXT NOT NULL,
    run_id         TEXT NOT NULL,
    node_id        TEXT NOT NULL,
    visit          INTEGER NOT NULL,
    position       INTEGER NOT NULL,              -- in the order of the walk
    kind           TEXT NOT NULL,
    status         TEXT NOT NULL,                 -- COMPLETED | WAITING | FAILED | CANCELLED
    reason_code    TEXT,
    reason_detail  TEXT,
    port           TEXT,                          -- the exit taken
    output         TEXT,                          -- JSON with its literals
    started_at     TIMESTAMPTZ NOT NULL,
    finished_at    TIMESTAMPTZ,
    PRIMARY KEY (workspace_id, run_id, node_id, visit),
    FOREIGN KEY (workspace_id, run_id) REFERENCES runs (workspace_id, id) ON DELETE CASCADE
);

-- What has reached a run in its wait_for since the run last looked.
CREATE TABLE run_signals (
    workspace_id  TEXT NOT NULL,
    run_id        TEXT NOT NULL,
    id            TEXT NOT NULL,                  -- a contact event's; or 'contact', which was changed
    at            TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, run_id, id),
    FOREIGN KEY (workspace_id, run_id) REFERENCES runs (workspace_id, id) ON DELETE CASCADE
);

-- One contact let through one throttle once.
CREATE TABLE throttle_takes (
    workspace_id   TEXT NOT NULL,
    id             TEXT NOT NULL,
    contact_id     TEXT NOT NULL,
    definition_id  TEXT NOT NULL,
    node_id        TEXT NOT NULL,
    key            TEXT NOT NULL,                 -- SHA-256 of what the definition renders
    taken_at       TIMESTAMPTZ NOT NULL,
    expires_at     TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id),
    FOREIGN KEY (workspace_id, contact_id) REFERENCES contacts (workspace_id, id) ON DELETE CASCADE
);
CREATE INDEX throttle_takes_by_place
    ON throttle_takes (workspace_id, contact_id, definition_id, node_id, key, taken_at);
CREATE INDEX throttle_takes_by_expiry ON throttle_takes (expires_at);

-- An HTTP request that a run waits for. It lives no longer than the wait: the run takes the answer
-- into its record.
CREATE TABLE calls (
    workspace_id   TEXT NOT NULL,
    id             TEXT NOT NULL,
    run_id         TEXT NOT NULL,
    status         TEXT NOT NULL,                 -- QUEUED | CALLING | ANSWERED
    sealed         BYTEA,                         -- the request, encrypted, until it is answered
    tries          INTEGER NOT NULL,              -- begun, each counted before it begins
    answer         TEXT,                          -- JSON, the body's literals kept; NULL without one
    reason_code    TEXT,
    reason_detail  TEXT,
    begun_by       BIGINT,                        -- the lease_token under which the last was counted
    created_at     TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id),
    FOREIGN KEY (workspace_id, run_id) REFERENCES runs (workspace_id, id) ON DELETE CASCADE
);
CREATE INDEX calls_by_run ON calls (workspace_id, run_id);

-- Work to be done now, or at a time: there is none for what has ended, or waits for somebody else.
-- Whoever claims it draws a token and moves wake_at to the end of the lease. No foreign keys: they
-- would cost every claim a look at each.
CREATE TABLE jobs (
    workspace_id  TEXT NOT NULL,
    kind          TEXT NOT NULL,                  -- run | message | call | event_attempt | segment | broadcast
    id            TEXT NOT NULL,                  -- of the row that it is the work of
    wake_at       TIMESTAMPTZ NOT NULL,           -- due then; of a claimed one the end of its lease
    lease_token   BIGINT NOT NULL,                -- 0: not claimed; else drawn afresh at every claim
    claims        INTEGER NOT NULL,               -- without progress; the fifth is the last
    woken         BOOLEAN NOT NULL,               -- something happened to it since it was claimed last
    PRIMARY KEY (workspace_id, kind, id)
);
-- The one is read in an order that the other does not have, so that no planner takes it for one
-- workspace's: it would walk everybody's jobs.
CREATE INDEX jobs_by_time ON jobs (kind, wake_at NULLS FIRST, id);
CREATE INDEX jobs_by_workspace ON jobs (kind, workspace_id, wake_at, id);

-- section 0005: messages and delivery

-- A message to an audience, which is frozen when its sending begins.
CREATE TABLE broadcasts (
    workspace_id   TEXT NOT NULL REFERENCES workspaces (id),
    id             TEXT NOT NULL,
    name           TEXT NOT NULL,
    segment_id     TEXT,                          -- its audience: one of these three
    filter         TEXT,                          -- JSON with its literals
    mentions       TEXT,                          -- ids that it names: of segments, of topics with a channel
    tag            TEXT,
    template_id    TEXT NOT NULL,
    topic_id       TEXT,                          -- NULL: the template's
    send_at        TIMESTAMPTZ,                   -- NULL: as soon as it is scheduled
    local_time     TEXT,                          -- HH:MM in each contact's time zone, from send_at on
    per_minute     INTEGER,                       -- messages, at the most
    state          TEXT NOT NULL,                 -- DRAFT | SCHEDULED | SENDING | PAUSED | SENT | CANCELLED
    reason_code    TEXT,                          -- of its state, where that needs one
    reason_detail  TEXT,
    previewed      JSONB,                         -- the audience when it was scheduled: reason → contacts
    frozen         JSONB NOT NULL DEFAULT '{}',   -- the audience as far as it is frozen, likewise
    frozen_at      TIMESTAMPTZ,                   -- who was created later is not in it
    frozen_until   TEXT,                          -- the last contact that was looked at
    is_frozen      BOOLEAN NOT NULL DEFAULT FALSE,  -- all contacts were
    paced_at       TIMESTAMPTZ,                   -- the pace is kept since then
    paced_from     TIMESTAMPTZ,                   -- it rises since then: of the first message, also after a resume
    domain_slots   JSONB NOT NULL DEFAULT '{}',   -- receiving domain → when its next message may leave,
                                                  -- of domains that others wait for
    judged_from    TEXT NOT NULL DEFAULT '',      -- the id of a message: bounces of later ones count
    goes_on_at     TIMESTAMPTZ,                   -- with a local time, when the work on it is to go on
    resumed_at     TIMESTAMPTZ,                   -- when it went on long after that, so that times had passed
    ending         BOOLEAN NOT NULL DEFAULT FALSE,  -- CANCELLED, and some recipients do not say so
    revision       INTEGER NOT NULL,
    created_at     TIMESTAMPTZ NOT NULL,
    updated_at     TIMESTAMPTZ NOT NULL,
    started_at     TIMESTAMPTZ,                   -- of the sending
    finished_at    TIMESTAMPTZ,
    PRIMARY KEY (workspace_id, id)
);
CREATE INDEX broadcasts_by_update ON broadcasts (workspace_id, updated_at, id);
CREATE INDEX broadcasts_by_state ON broadcasts (workspace_id, state, id);
CREATE INDEX broadcasts_unfinished ON broadcasts (workspace_id, id)
    WHERE COALESCE(state IN ('DRAFT', 'SCHEDULED', 'SENDING', 'PAUSED'), FALSE);
CREATE INDEX broadcasts_at_work ON broadcasts (workspace_id, id)
    WHERE COALESCE(state IN ('SCHEDULED', 'SENDING') OR ending, FALSE);

-- A contact of a broadcast's frozen audience, with its message or the reason for none. No foreign key
-- to the contact: that there was one is counted after its erasure, too.
CREATE TABLE broadcast_recipients (
    workspace_id  TEXT NOT NULL,
    broadcast_id  TEXT NOT NULL,
    contact_id    TEXT NOT NULL,
    status        TEXT NOT NULL,                  -- PENDING | QUEUED | SENT | DELIVERED | BOUNCED |
                                                  -- COMPLAINED | FAILED | UNKNOWN | SUPPRESSED | CANCELLED
    reason        TEXT,
    message_id    TEXT,                           -- made when its turn comes
    due_at        TIMESTAMPTZ NOT NULL,
    has_turn      BOOLEAN NOT NULL DEFAULT FALSE,  -- due then because others at its domain come first
    PRIMARY KEY (workspace_id, broadcast_id, contact_id),
    FOREIGN KEY (workspace_id, broadcast_id)
        REFERENCES broadcasts (workspace_id, id) ON DELETE CASCADE
);
-- For those alone who say so, as they ask for a status: a planner whose statistics are old would take it for as good
-- as the primary key, and walk a whole audience to find one of its contacts.
CREATE INDEX broadcast_recipients_by_status
    ON broadcast_recipients (workspace_id, broadcast_id, status, contact_id)
    WHERE COALESCE(status, '') <> '';
CREATE INDEX broadcast_recipients_by_reason
    ON broadcast_recipients (workspace_id, broadcast_id, reason, contact_id)
    WHERE reason IS NOT NULL;
CREATE INDEX broadcast_recipients_pending
    ON broadcast_recipients (workspace_id, broadcast_id, due_at, contact_id)
    WHERE status = 'PENDING';
CREATE INDEX broadcast_recipients_by_message
    ON broadcast_recipients (workspace_id, broadcast_id, message_id)
    WHERE message_id IS NOT NULL;

-- One message to one recipient.
CREATE TABLE messages (
    workspace_id      TEXT NOT NULL REFERENCES workspaces (id),
    id                TEXT NOT NULL,
    run_id            TEXT,
    node_id           TEXT,
    visit             INTEGER,
    broadcast_id      TEXT,
    contact_id        TEXT,
    template_id       TEXT,
    template_version  INTEGER,                    -- the one rendered, known from the intent on
    channel           TEXT NOT NULL,
    category          TEXT NOT NULL,
    topic_id          TEXT,                       -- its sender's; from the intent on its content's, if
                                                  -- that one named it
    to_address        TEXT,                       -- NULL until the intent when it is the contact's own
    address_hash      TEXT,                       -- where it went, as suppressions know it, while it may
                                                  -- still arrive
    source            TEXT NOT NULL,              -- JSON: {"content"} when inline, {"data"} for a direct message
    sealed            BYTEA,                      -- account mail's source, encrypted, until it has gone out
    content           TEXT,                       -- JSON: as rendered, from the intent on
    account_mail      TEXT,                       -- invitation | owner_invitation | password_reset |
                                                  -- email_verification
    addressee_id      TEXT,                       -- the user who alone may read account mail
    status            TEXT NOT NULL,              -- its newest attempt's
    reason_code       TEXT,
    reason_detail     TEXT,
    parked            BOOLEAN NOT NULL DEFAULT FALSE,  -- nobody's job until the workspace, or its
                                                  -- broadcast, sends again
    send_at           TIMESTAMPTZ,                -- not before, as was asked for
    waits_until       TIMESTAMPTZ,                -- that time, or the end of quiet hours, while it waits
    intended_at       TIMESTAMPTZ,                -- when it was last about to leave, of marketing
    sent_at           TIMESTAMPTZ,                -- when a provider took it, or may have, or refused
                                                  -- its recipient
    held_until        TIMESTAMPTZ,                -- waits for its provider, not for its own next try, as
                                                  -- long as its job says; who finds the provider well wakes it
    intended_by       BIGINT,                     -- the lease_token under which it became SENDING
    created_at        TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id),
    UNIQUE (workspace_id, run_id, node_id, visit)
);
CREATE UNIQUE INDEX messages_of_broadcast ON messages (workspace_id, broadcast_id, contact_id)
    WHERE broadcast_id IS NOT NULL;
CREATE INDEX messages_by_contact ON messages (workspace_id, contact_id, id);
CREATE INDEX messages_by_status ON messages (workspace_id, status, id);
-- How often somebody has been written to lately.
CREATE INDEX messages_of_marketing ON messages (workspace_id, contact_id, intended_at)
    WHERE intended_at IS NOT NULL;
CREATE INDEX messages_parked ON messages (workspace_id, id) WHERE parked;
-- In words that no list by status has: such a list would walk all of them.
CREATE INDEX messages_unsent ON messages (workspace_id, id)
    WHERE COALESCE(status IN ('QUEUED', 'SENDING'), FALSE);
CREATE INDEX messages_in_flight ON messages (workspace_id, address_hash)
    WHERE address_hash IS NOT NULL;
CREATE INDEX messages_by_run ON messages (workspace_id, run_id, id);
-- Over all workspaces those of unknown outcome: zero when healthy.
CREATE INDEX messages_unknown ON messages (id) WHERE status = 'UNKNOWN';
CREATE INDEX messages_held_back ON messages (workspace_id, channel, held_until)
    WHERE held_until IS NOT NULL;
-- For erasure, of messages that no run sends: they may be to an address alone.
CREATE INDEX messages_by_address ON messages (workspace_id, lower(to_address), id)
    WHERE run_id IS NULL;
-- Runs by what became of their messages, where that is not what their author wanted.
CREATE INDEX messages_of_runs_in_trouble ON messages (workspace_id, status, run_id)
    WHERE run_id IS NOT NULL AND status IN ('BOUNCED', 'FAILED', 'SUPPRESSED', 'UNKNOWN');

-- One attempt to hand a message to a provider. Automatic retries of what was certainly not accepted
-- stay within the attempt; only a resend makes another.
CREATE TABLE delivery_attempts (
    workspace_id         TEXT NOT NULL,
    id                   TEXT NOT NULL,
    message_id           TEXT NOT NULL,
    number               INTEGER NOT NULL,
    message_key          TEXT NOT NULL,           -- made from message and number; also the Message-ID's
                                                  -- local part
    provider             TEXT,
    account              TEXT,                    -- a hash of the newest call's credentials, where the
                                                  -- provider honours the message's key: a call whose worker
                                                  -- was lost is made again with these, and with no others
    status               TEXT NOT NULL,           -- QUEUED | SENDING | SENT | DELIVERED | FAILED |
                                                  -- BOUNCED | COMPLAINED | SUPPRESSED | UNKNOWN
    reason_code          TEXT,
    reason_detail        TEXT,
    trouble_code         TEXT,                    -- why tries failed since then, of several reasons the one
    trouble_since        TIMESTAMPTZ,             -- for which it is tried longest
    provider_message_id  TEXT,
    tries                INTEGER NOT NULL,        -- calls made under this attempt
    counted_daily        BOOLEAN NOT NULL DEFAULT FALSE,  -- its workspace's daily limit has counted it
    events               JSONB NOT NULL,          -- [{"at", "status", "code", "detail"}]
    created_at           TIMESTAMPTZ NOT NULL,
    sent_at              TIMESTAMPTZ,
    finished_at          TIMESTAMPTZ,
    PRIMARY KEY (workspace_id, id),
    UNIQUE (workspace_id, message_id, number),
    FOREIGN KEY (workspace_id, message_id) REFERENCES messages (workspace_id, id) ON DELETE CASCADE
);
CREATE INDEX delivery_attempts_by_status ON delivery_attempts (workspace_id, status, id);
-- Over all workspaces the newest of each status, for the operator.
CREATE INDEX delivery_attempts_of_status ON delivery_attempts (status, id);

-- A workspace's own provider for a channel, in place of the operator's.
CREATE TABLE channel_settings (
    workspace_id  TEXT NOT NULL REFERENCES workspaces (id),
    channel       TEXT NOT NULL,                  -- email | sms | whatsapp
    sealed        BYTEA NOT NULL,                 -- provider, credentials and sender: JSON, encrypted
    token         TEXT NOT NULL,                  -- the secret part of the URL for its callbacks
    revision      INTEGER NOT NULL,
    created_at    TIMESTAMPTZ NOT NULL,
    updated_at    TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, channel)
);

-- A callback of a provider, so that its copies change nothing.
CREATE TABLE callbacks (
    workspace_id  TEXT NOT NULL REFERENCES workspaces (id),
    id            TEXT NOT NULL,                  -- keyed hash of the provider and its own id of it
    expires_at    TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id)
);
CREATE INDEX callbacks_by_expiry ON callbacks (expires_at);

-- A workspace has written to a number through the operator's account, whose sender many share: what
-- comes back from there is meant for all of them.
CREATE TABLE shared_recipients (
    workspace_id  TEXT NOT NULL REFERENCES workspaces (id),
    address_hash  TEXT NOT NULL,                  -- of channel and number, the same for every workspace
    written_at    TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, address_hash)
);
CREATE INDEX shared_recipients_by_address ON shared_recipients (address_hash, written_at);

-- A provider that did not take a workspace's message, and whether it is asked; gone once it takes one
-- and nobody is held back any more.
CREATE TABLE circuit_breakers (
    workspace_id  TEXT NOT NULL REFERENCES workspaces (id),
    channel       TEXT NOT NULL,
    provider      TEXT NOT NULL,
    code          TEXT NOT NULL,                  -- provider_throttled | provider_unreachable |
                                                  -- provider_misconfigured | recipients_refused
    failures      INTEGER NOT NULL,               -- in a row
    ask_at        TIMESTAMPTZ,                    -- nobody calls before, then one; NULL: whoever is due
    PRIMARY KEY (workspace_id, channel)
);
CREATE INDEX circuit_breakers_by_time ON circuit_breakers (ask_at) WHERE ask_at IS NOT NULL;
CREATE INDEX circuit_breakers_closed ON circuit_breakers (workspace_id, channel)
    WHERE ask_at IS NULL AND failures = 0;

-- How many recipients a workspace's provider has taken or refused, and how many of them as dead, in
-- each of the last minutes: one row for each minute of ten, used again and again.
CREATE TABLE recipient_counts (
    workspace_id  TEXT NOT NULL REFERENCES workspaces (id),
    channel       TEXT NOT NULL,
    provider      TEXT NOT NULL,
    slot          INTEGER NOT NULL,               -- the minute modulo ten
    minute        BIGINT NOT NULL,                -- since 1970
    recipients    INTEGER NOT NULL,
    dead          INTEGER NOT NULL,
    put_off       INTEGER NOT NULL DEFAULT 0,     -- at their first try, and not counted among recipients
    PRIMARY KEY (workspace_id, channel, provider, slot)
);

-- An address that was suppressed because a provider refused it as dead: for ten minutes, or until
-- that is undone, because the provider turned out to be at fault.
CREATE TABLE refused_recipients (
    workspace_id    TEXT NOT NULL REFERENCES workspaces (id),
    suppression_id  TEXT NOT NULL,
    channel         TEXT NOT NULL,
    provider        TEXT NOT NULL,
    message_id      TEXT NOT NULL,
    undo            BOOLEAN NOT NULL,
    refused_at      TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, suppression_id)
);
CREATE INDEX refused_recipients_by_time
    ON refused_recipients (workspace_id, channel, provider, refused_at);
CREATE INDEX refused_recipients_to_undo ON refused_recipients (workspace_id, suppression_id)
    WHERE undo;

-- section 0006: outbound events

-- A URL of the workspace's own that its events are posted to.
CREATE TABLE event_endpoints (
    workspace_id      TEXT NOT NULL REFERENCES workspaces (id),
    id                TEXT NOT NULL,
    url               TEXT NOT NULL,
    description       TEXT,
    types             JSONB NOT NULL,             -- of events; none means every one
    secret            BYTEA NOT NULL,             -- encrypted
    old_secret        BYTEA,                      -- encrypted; signs beside the new one until then
    old_secret_until  TIMESTAMPTZ,
    disabled_reason   TEXT,                       -- NULL: enabled; manual | gone | failing
    disabled_at       TIMESTAMPTZ,
    failing_since     TIMESTAMPTZ,                -- NULL: the newest try succeeded
    revision          INTEGER NOT NULL,
    created_at        TIMESTAMPTZ NOT NULL,
    updated_at        TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id)
);

-- Something that happened while an endpoint listened for it. Ids and codes, nothing of a person.
CREATE TABLE events (
    workspace_id  TEXT NOT NULL,
    id            TEXT NOT NULL,                  -- the webhook-id
    type          TEXT NOT NULL,
    data          TEXT NOT NULL,                  -- JSON
    created_at    TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id)
);

-- One event on its way to one endpoint. Automatic tries stay within it; a replay makes another.
CREATE TABLE event_attempts (
    workspace_id      TEXT NOT NULL,
    id                TEXT NOT NULL,
    endpoint_id       TEXT NOT NULL,
    event_id          TEXT NOT NULL,
    status            TEXT NOT NULL,              -- QUEUED | SUCCEEDED | FAILED
    reason_code       TEXT,
    reason_detail     TEXT,
    response_status   INTEGER,                    -- of the newest try, and how its body begins
    response_excerpt  TEXT,
    tries             JSONB NOT NULL,             -- [{"at", "status", "code", "durationMs"}]
    created_at        TIMESTAMPTZ NOT NULL,
    finished_at       TIMESTAMPTZ,
    PRIMARY KEY (workspace_id, id)
);
CREATE INDEX event_attempts_unfinished ON event_attempts (workspace_id, id)
    WHERE finished_at IS NULL;
CREATE INDEX event_attempts_by_endpoint ON event_attempts (workspace_id, endpoint_id, id);
CREATE INDEX event_attempts_by_status ON event_attempts (workspace_id, endpoint_id, status, id);
CREATE INDEX event_attempts_by_event ON event_attempts (workspace_id, event_id, endpoint_id);

-- section 0007: billing, audit and administration

-- What a workspace pays for, as its payment provider last reported.
CREATE TABLE paid_plans (
    workspace_id     TEXT PRIMARY KEY REFERENCES workspaces (id),
    provider         TEXT NOT NULL,               -- stripe | sandbox
    customer_id      TEXT,                        -- the provider's name for the workspace
    subscription_id  TEXT,                        -- NULL: nothing is paid for
    plan             TEXT NOT NULL,
    next_plan        TEXT,                        -- from renews_at on, when it is another
    status           TEXT NOT NULL,               -- active | trialing | past_due | canceled
    renews_at        TIMESTAMPTZ,
    revision         INTEGER NOT NULL,            -- an answer of the provider older than it is void
    updated_at       TIMESTAMPTZ NOT NULL
);
CREATE INDEX paid_plans_by_end ON paid_plans (renews_at) WHERE renews_at IS NOT NULL;

-- How much of something a workspace has, up to what is still in usage_changes. Of what counts by the
-- month, the period is such as 2026-01; else it is empty.
CREATE TABLE usage_totals (
    workspace_id  TEXT NOT NULL REFERENCES workspaces (id),
    meter         TEXT NOT NULL,                  -- contacts | messages
    period        TEXT NOT NULL,
    amount        INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, meter, period)
);

-- A change of it, written in the transaction that makes it; a worker adds it to the total.
CREATE TABLE usage_changes (
    workspace_id  TEXT NOT NULL REFERENCES workspaces (id),
    meter         TEXT NOT NULL,
    period        TEXT NOT NULL,
    id            TEXT NOT NULL,
    amount        INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, meter, period, id)
);

-- One act of a member or a key. Written in the act's own transaction with a MAC of its own; the
-- worker chains it within a second. `changes` may be forgotten, its salted hash stays.
CREATE TABLE audit_logs (
    workspace_id   TEXT NOT NULL REFERENCES workspaces (id),
    id             TEXT NOT NULL,
    action         TEXT NOT NULL,                 -- contact.created
    actor_type     TEXT NOT NULL,                 -- user | api_key | operator | provider | service
    actor_id       TEXT,
    actor_name     TEXT NOT NULL,
    resource_type  TEXT NOT NULL,
    resource_id    TEXT NOT NULL,
    changes        TEXT,                          -- JSON: field → [before, after], secrets masked
    salt           BYTEA,
    changes_hash   BYTEA NOT NULL,
    forgotten      BYTEA,                         -- the MAC that allows changes to be NULL
    ip             TEXT,
    request_id     TEXT NOT NULL,
    created_at     TIMESTAMPTZ NOT NULL,
    mac            BYTEA NOT NULL,
    sequence       INTEGER,                       -- its place in the chain; NULL until it has one
    hash           BYTEA,                         -- of the entry before it, and of its own MAC
    PRIMARY KEY (workspace_id, id),
    UNIQUE (workspace_id, sequence)
);
CREATE INDEX audit_logs_unchained ON audit_logs (workspace_id, id) WHERE sequence IS NULL;
CREATE INDEX audit_logs_by_resource ON audit_logs (workspace_id, resource_id, id);
CREATE INDEX audit_logs_by_actor ON audit_logs (workspace_id, actor_id, id);
CREATE INDEX audit_logs_by_action ON audit_logs (workspace_id, action, id);
-- Over all workspaces, for the operator.
CREATE INDEX audit_logs_by_id ON audit_logs (id);

-- Where a workspace's chain begins (after what was pruned) and ends, signed.
CREATE TABLE audit_heads (
    workspace_id    TEXT PRIMARY KEY REFERENCES workspaces (id),
    first_sequence  INTEGER NOT NULL,             -- of the oldest entry that is kept
    first_hash      BYTEA NOT NULL,               -- of the entry before that one
    sequence        INTEGER NOT NULL,
    hash            BYTEA NOT NULL,
    mac             BYTEA NOT NULL
);

-- The answer to a POST with an Idempotency-Key, which its copies get again for a day.
CREATE TABLE idempotency_keys (
    workspace_id  TEXT NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    id            BYTEA NOT NULL,                 -- keyed hash of method, path and key
    asked         BYTEA NOT NULL,                 -- keyed hash of query and body
    only_for      TEXT,                           -- the bearer who alone sees a secret again
    about         TEXT,                           -- the resource in the answer, which is empty once that
                                                  -- has been erased
    answer        BYTEA NOT NULL,                 -- encrypted
    expires_at    TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id)
);
CREATE INDEX idempotency_keys_by_expiry ON idempotency_keys (expires_at);
CREATE INDEX idempotency_keys_by_resource ON idempotency_keys (workspace_id, about)
    WHERE about IS NOT NULL;

-- A random data key, wrapped by SECRET_KEY; encrypts what must be readable again.
CREATE TABLE data_keys (
    id          TEXT PRIMARY KEY,
    wrapped     BYTEA NOT NULL,
    created_at  TIMESTAMPTZ NOT NULL
);

-- A sum over all processes, those that ended included: what /metrics shows.
CREATE TABLE counters (
    name    TEXT NOT NULL,
    labels  TEXT NOT NULL,                        -- JSON, names in order
    value   DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (name, labels)
);

-- When the next sweep over all workspaces is due that one process makes for all of them.
CREATE TABLE sweeps (
    name     TEXT NOT NULL,
    next_at  TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (name)
);

-- section 0008: the sandbox

-- A message that the sandbox captured instead of sending it.
CREATE TABLE captured_messages (
    workspace_id   TEXT NOT NULL REFERENCES workspaces (id),
    id             TEXT NOT NULL,
    message_key    TEXT NOT NULL,                 -- the second capture of one attempt is the first
    message_id     TEXT NOT NULL,
    attempt_id     TEXT NOT NULL,
    run_id         TEXT,
    contact_id     TEXT,
    channel        TEXT NOT NULL,
    category       TEXT,                          -- its message's: not every member may read to whom a
                                                  -- test email went
    to_address     TEXT NOT NULL,
    from_address   TEXT,
    subject        TEXT,
    text           TEXT NOT NULL,
    html           TEXT,
    headers        JSONB NOT NULL,
    account_mail   TEXT,                          -- its message's, as who may read it
    addressee_id   TEXT,
    captured_at    TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id),
    UNIQUE (workspace_id, message_key)
);
CREATE INDEX captured_messages_by_to ON captured_messages (workspace_id, lower(to_address), id);
CREATE INDEX captured_messages_by_run ON captured_messages (workspace_id, run_id, id);
CREATE INDEX captured_messages_by_contact ON captured_messages (workspace_id, contact_id, id);
CREATE INDEX captured_messages_by_message ON captured_messages (workspace_id, message_id, id);

-- What the sandbox's provider does wrong with the next messages of a workspace, because somebody
-- wants to see what their flow does then.
CREATE TABLE sandbox_faults (
    workspace_id  TEXT NOT NULL REFERENCES workspaces (id),
    id            TEXT NOT NULL,
    kind          TEXT NOT NULL,                  -- fail | throttle | stall | accept_then_drop |
                                                  -- duplicate_callback | bounce | complain
    channel       TEXT,                           -- NULL: any
    count         INTEGER NOT NULL,
    remaining     INTEGER NOT NULL,
    created_at    TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id)
);

-- A visit to the sandbox's own checkout page, which takes no money.
CREATE TABLE checkouts (
    workspace_id  TEXT NOT NULL REFERENCES workspaces (id),
    id            TEXT NOT NULL,
    plan          TEXT NOT NULL,
    token_hash    BYTEA NOT NULL,                 -- SHA-256 of the token in the page's URL
    status        TEXT NOT NULL,                  -- OPEN | COMPLETED | CANCELLED
    success_url   TEXT NOT NULL,
    cancel_url    TEXT NOT NULL,
    expires_at    TIMESTAMPTZ NOT NULL,
    created_at    TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id),
    UNIQUE (workspace_id, token_hash)
);
CREATE INDEX checkouts_by_expiry ON checkouts (expires_at);
