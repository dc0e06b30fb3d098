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
    email_key      TEXT NOT NULL UNIQUE,          -- in lower case
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
    email_key     TEXT,                           -- in lower case
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
    waiting_for    JSONB,                         -- {"kind": "time" | "delivery" | "http" | "event", …}
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
    status               TEXT NOT NULL,           -- QUEUED | SENDING | SENT | DELIVERED | FAILED |
                                                  -- BOUNCED | COMPLAINED | SUPPRESSED | UNKNOWN
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
    email_key     TEXT NOT NULL,                  -- in lower case
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

-- section 0008: what came in

-- What became of one request to a webhook URL that was known: the newest 1,000 of a definition, for
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
    created_at     TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id)
);
CREATE INDEX webhook_requests_by_definition ON webhook_requests (workspace_id, definition_id, id);
CREATE INDEX webhook_requests_by_code ON webhook_requests (workspace_id, definition_id, code, id)
    WHERE code IS NOT NULL;
CREATE INDEX webhook_requests_by_contact ON webhook_requests (workspace_id, contact_id, id)
    WHERE contact_id IS NOT NULL;

-- What an event was answered, for its copies: for a day they are given the same ids.
CREATE TABLE receipts (
    workspace_id  TEXT NOT NULL,
    id            BYTEA NOT NULL,                 -- keyed hash of definition, kind of key and value
    run_id        TEXT NOT NULL,
    contact_id    TEXT NOT NULL,
    expires_at    TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id)
);
CREATE INDEX receipts_by_expiry ON receipts (expires_at);

-- section 0009: what starts a run, and what it waits for

ALTER TABLE runs ADD COLUMN depth INTEGER NOT NULL DEFAULT 0;  -- of the chain of runs that started it
CREATE INDEX runs_unfinished ON runs (workspace_id, definition_id, id) WHERE finished_at IS NULL;
CREATE INDEX runs_listening ON runs (workspace_id, contact_id) WHERE waiting_for ->> 'kind' = 'event';

ALTER TABLE definitions ADD COLUMN ending BOOLEAN NOT NULL DEFAULT FALSE;  -- ARCHIVED, and runs are left
CREATE INDEX definitions_ending ON definitions (workspace_id, id) WHERE ending;
CREATE INDEX definitions_by_source ON definitions (workspace_id, (trigger_config ->> 'source'))
    WHERE state = 'ACTIVE';

-- Something that a contact did, as somebody told us.
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

-- section 0010: what runs ask of others

-- An HTTP request that a run waits for. Like a run it is its own job: due at wake_at, fenced by
-- lease_token. It lives no longer than the wait: the run takes the answer into its record.
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
    wake_at        TIMESTAMPTZ,
    lease_token    INTEGER NOT NULL,
    claims         INTEGER NOT NULL,
    created_at     TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id),
    FOREIGN KEY (workspace_id, run_id) REFERENCES runs (workspace_id, id) ON DELETE CASCADE
);
CREATE INDEX calls_due ON calls (wake_at, id) WHERE wake_at IS NOT NULL;
CREATE INDEX calls_due_by_workspace ON calls (workspace_id, wake_at, id) WHERE wake_at IS NOT NULL;
CREATE INDEX calls_by_run ON calls (workspace_id, run_id);

-- section 0011: people, and what a workspace says of itself

-- Whom a provider of single sign-on means by one of its subjects.
CREATE TABLE user_identities (
    issuer      TEXT NOT NULL,
    subject     TEXT NOT NULL,
    user_id     TEXT NOT NULL REFERENCES users (id),
    created_at  TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (issuer, subject)
);
CREATE INDEX user_identities_by_user ON user_identities (user_id);

-- How long what happened is kept; NULL is the operator's own measure.
ALTER TABLE workspaces ADD COLUMN retention_days INTEGER;
-- Whom its mail is from, where the content does not say; NULL is the operator's own.
ALTER TABLE workspaces ADD COLUMN from_name TEXT;
ALTER TABLE workspaces ADD COLUMN from_email TEXT;
ALTER TABLE workspaces ADD COLUMN reply_to TEXT;
-- Its messages wait, without a wake_at, until it sends again.
ALTER TABLE workspaces ADD COLUMN sending_paused BOOLEAN NOT NULL DEFAULT FALSE;
CREATE INDEX messages_parked ON messages (workspace_id, id)
    WHERE status = 'QUEUED' AND wake_at IS NULL;

-- For lists of what has changed.
CREATE INDEX templates_by_update ON templates (workspace_id, updated_at, id);
CREATE INDEX definitions_by_update ON definitions (workspace_id, updated_at, id);

-- section 0013: whom nobody writes to

-- What is not simply `subscribed`: channel → unsubscribed | bounced | complained.
ALTER TABLE contacts ADD COLUMN subscriptions JSONB NOT NULL DEFAULT '{}';

-- An address that is not to be written to, for one of several reasons. It outlives its contact: of
-- an erased one the keyed hash is left, which says nothing and is still found.
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

-- A contact wanted to be written to no more, or again; or seems to: somebody should read it.
CREATE TABLE consent_events (
    workspace_id  TEXT NOT NULL,
    id            TEXT NOT NULL,
    contact_id    TEXT NOT NULL,
    channel       TEXT NOT NULL,
    kind          TEXT NOT NULL,                  -- opted_out | opted_in | flagged
    reason        TEXT,                           -- a suppression's
    source        TEXT NOT NULL,
    at            TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id),
    FOREIGN KEY (workspace_id, contact_id) REFERENCES contacts (workspace_id, id) ON DELETE CASCADE
);
CREATE INDEX consent_events_by_contact ON consent_events (workspace_id, contact_id, id);

-- Where the message went, as suppressions know it, while nobody is sure that it has arrived.
ALTER TABLE messages ADD COLUMN address_hash TEXT;
CREATE INDEX messages_in_flight ON messages (workspace_id, address_hash)
    WHERE address_hash IS NOT NULL;
CREATE INDEX messages_by_run ON messages (workspace_id, run_id, id);

-- section 0014: who changed what

-- One act of a member or a key. Written in the act's own transaction with a MAC of its own; the
-- worker chains it within a second. `changes` may be forgotten, its salted hash stays.
CREATE TABLE audit_logs (
    workspace_id   TEXT NOT NULL REFERENCES workspaces (id),
    id             TEXT NOT NULL,
    action         TEXT NOT NULL,                 -- contact.created
    actor_type     TEXT NOT NULL,                 -- user | api_key | operator | provider
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

-- Where a workspace's chain begins (after what was pruned) and ends, signed.
CREATE TABLE audit_heads (
    workspace_id    TEXT PRIMARY KEY REFERENCES workspaces (id),
    first_sequence  INTEGER NOT NULL,             -- of the oldest entry that is kept
    first_hash      BYTEA NOT NULL,               -- of the entry before that one
    sequence        INTEGER NOT NULL,
    hash            BYTEA NOT NULL,
    mac             BYTEA NOT NULL
);

-- section 0015: what it costs

-- The plan that is paid for, if any is.
ALTER TABLE workspaces ADD COLUMN plan TEXT NOT NULL DEFAULT 'starter';

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
INSERT INTO usage_totals (workspace_id, meter, period, amount)
SELECT workspace_id, 'contacts', '', count(*) FROM contacts GROUP BY workspace_id;

-- What a workspace pays for, as its payment provider last told.
CREATE TABLE paid_plans (
    workspace_id     TEXT PRIMARY KEY REFERENCES workspaces (id),
    provider         TEXT NOT NULL,               -- stripe | sandbox
    customer_id      TEXT UNIQUE,                 -- the provider's name for the workspace
    subscription_id  TEXT,                        -- NULL: nothing is paid for
    plan             TEXT NOT NULL,
    next_plan        TEXT,                        -- from renews_at on, when it is another
    status           TEXT NOT NULL,               -- active | trialing | past_due | canceled
    renews_at        TIMESTAMPTZ,
    revision         INTEGER NOT NULL,            -- an answer of the provider older than it is void
    updated_at       TIMESTAMPTZ NOT NULL
);
CREATE INDEX paid_plans_by_end ON paid_plans (renews_at) WHERE renews_at IS NOT NULL;

-- Somebody at the sandbox's own till.
CREATE TABLE checkouts (
    workspace_id  TEXT NOT NULL REFERENCES workspaces (id),
    id            TEXT NOT NULL,
    plan          TEXT NOT NULL,
    token_hash    BYTEA NOT NULL UNIQUE,          -- SHA-256 of what opens its page
    status        TEXT NOT NULL,                  -- OPEN | COMPLETED | CANCELLED
    success_url   TEXT NOT NULL,
    cancel_url    TEXT NOT NULL,
    expires_at    TIMESTAMPTZ NOT NULL,
    created_at    TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id)
);
CREATE INDEX checkouts_by_expiry ON checkouts (expires_at);

-- section 0016: how it goes

-- A sum over all processes, those that ended included: what /metrics shows.
CREATE TABLE counters (
    name    TEXT NOT NULL,
    labels  TEXT NOT NULL,                        -- JSON, names in order
    value   DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (name, labels)
);

-- What nobody can know the outcome of, over all workspaces: zero when healthy.
CREATE INDEX messages_unknown ON messages (id) WHERE status = 'UNKNOWN';

-- section 0018: what an operator looks at

-- Over all workspaces the newest of what went wrong: other rows cost nothing.
CREATE INDEX runs_failed ON runs (id) WHERE status = 'FAILED';
CREATE INDEX delivery_attempts_troubled ON delivery_attempts (id)
    WHERE status IN ('FAILED', 'UNKNOWN', 'BOUNCED', 'COMPLAINED');
CREATE INDEX audit_logs_by_id ON audit_logs (id);

-- section 0019: by whom it goes out, and what they tell of it

-- A workspace's own provider for a channel, in place of the operator's.
CREATE TABLE channel_settings (
    workspace_id  TEXT NOT NULL REFERENCES workspaces (id),
    channel       TEXT NOT NULL,                  -- email | sms | whatsapp
    sealed        BYTEA NOT NULL,                 -- provider, credentials and sender: JSON, encrypted
    token         TEXT NOT NULL UNIQUE,           -- the secret part of the URL that it tells at
    revision      INTEGER NOT NULL,
    created_at    TIMESTAMPTZ NOT NULL,
    updated_at    TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, channel)
);

-- Something that a provider told, so that its copies change nothing.
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

-- section 0020: what others are told

-- A URL that is told what happens in a workspace.
CREATE TABLE event_endpoints (
    workspace_id      TEXT NOT NULL REFERENCES workspaces (id),
    id                TEXT NOT NULL,
    url               TEXT NOT NULL,
    description       TEXT,
    types             JSONB NOT NULL,             -- of events; none means every one
    secret            BYTEA NOT NULL,             -- encrypted
    old_secret        BYTEA,                      -- encrypted; signs beside the new one until then
    old_secret_until  TIMESTAMPTZ,
    disabled_reason   TEXT,                       -- NULL: it is told; manual | gone | failing
    disabled_at       TIMESTAMPTZ,
    failing_since     TIMESTAMPTZ,                -- NULL: the newest try succeeded
    revision          INTEGER NOT NULL,
    created_at        TIMESTAMPTZ NOT NULL,
    updated_at        TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id)
);

-- Something that happened while somebody wanted to hear of it. Ids and codes, nothing of a person.
CREATE TABLE events (
    workspace_id  TEXT NOT NULL,
    id            TEXT NOT NULL,                  -- the webhook-id
    type          TEXT NOT NULL,
    data          TEXT NOT NULL,                  -- JSON
    created_at    TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (workspace_id, id)
);

-- One event on its way to one endpoint. Like a run it is its own job: due at wake_at, fenced by
-- lease_token. Automatic tries stay within it; a replay makes another.
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
    wake_at           TIMESTAMPTZ,
    lease_token       INTEGER NOT NULL,
    claims            INTEGER NOT NULL,           -- without an outcome; the fifth is the last
    created_at        TIMESTAMPTZ NOT NULL,
    finished_at       TIMESTAMPTZ,
    PRIMARY KEY (workspace_id, id)
);
CREATE INDEX event_attempts_due ON event_attempts (wake_at, id) WHERE wake_at IS NOT NULL;
CREATE INDEX event_attempts_due_by_workspace ON event_attempts (workspace_id, wake_at, id)
    WHERE wake_at IS NOT NULL;
CREATE INDEX event_attempts_by_endpoint ON event_attempts (workspace_id, endpoint_id, id);
CREATE INDEX event_attempts_by_status ON event_attempts (workspace_id, endpoint_id, status, id);
CREATE INDEX event_attempts_by_event ON event_attempts (workspace_id, event_id, endpoint_id);

-- section 0021: whose provider is waited for

-- A provider that did not take what a workspace gave it; gone once it takes something and nobody is
-- held back any more.
CREATE TABLE provider_troubles (
    workspace_id  TEXT NOT NULL REFERENCES workspaces (id),
    channel       TEXT NOT NULL,
    provider      TEXT NOT NULL,
    code          TEXT NOT NULL,                  -- provider_throttled | provider_unreachable |
                                                  -- provider_misconfigured
    failures      INTEGER NOT NULL,               -- in a row
    ask_at        TIMESTAMPTZ,                    -- nobody calls before, then one; NULL: whoever is due
    PRIMARY KEY (workspace_id, channel)
);
CREATE INDEX provider_troubles_by_time ON provider_troubles (ask_at) WHERE ask_at IS NOT NULL;

-- It waits for its provider, not for its own next try; whoever finds the provider well wakes it.
ALTER TABLE messages ADD COLUMN held_back BOOLEAN NOT NULL DEFAULT FALSE;
CREATE INDEX messages_held_back ON messages (workspace_id, channel, wake_at) WHERE held_back;

-- What it has come to, every time since then: each kind of trouble has a patience of its own.
ALTER TABLE delivery_attempts ADD COLUMN trouble_code TEXT;
ALTER TABLE delivery_attempts ADD COLUMN trouble_since TIMESTAMPTZ;

-- section 0023: members that are read and changed by themselves

ALTER TABLE memberships ADD COLUMN revision INTEGER NOT NULL DEFAULT 1;

-- section 0026: how long things are kept

-- What is old enough to go; everything else is found by its id, which tells its age.
CREATE INDEX runs_finished ON runs (workspace_id, finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX sessions_by_expiry ON sessions (expires_at);

-- section 0030: what goes wrong on purpose

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

-- section 0033: who may be asked again

-- A hash of the credentials that the newest call was made with, where its provider honours the
-- message's key: a call whose worker was lost is made again with these, and with no others.
ALTER TABLE delivery_attempts ADD COLUMN account TEXT;

-- section 0035: one captured message

CREATE INDEX captured_messages_by_message ON captured_messages (workspace_id, message_id, id);

-- section 0037: what an erased person is found by

-- Of messages that no run sends: they may be to an address alone.
CREATE INDEX messages_by_address ON messages (workspace_id, lower(to_address), id)
    WHERE run_id IS NULL;

-- The resource that the answer tells of; and the answer is empty once that has been erased.
ALTER TABLE idempotency_keys ADD COLUMN about TEXT;
CREATE INDEX idempotency_keys_by_resource ON idempotency_keys (workspace_id, about)
    WHERE about IS NOT NULL;

-- section 0038: what an erased person was reached by before

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

-- section 0039: which captured messages are tests

-- Its message's: whom a test email went to is not for every member to read.
ALTER TABLE captured_messages ADD COLUMN category TEXT;
