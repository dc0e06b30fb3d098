"""Tidings: an event comes in, a run moves on, a message goes out.

The rooms, top to bottom; no import points back up. Printed from the import contract in
pyproject.toml and from the first line of each room, by tests/test_house.py.

__main__      The command line: python -m app run | web | worker | migrate | demo | doctor | …
commands      Commands: to serve, to operate an installation, to write definitions; demo and doctor.
workers       The processes that move runs and deliver messages.
main          Wiring: settings → database, vault, hints, channels → the web application.
routes        The whole API on one page, path by path: who may call it, and from which plan on.
simulation    A definition on paper: a virtual clock, cases, and how two traces compare.
intake        1. An event comes in: token → signature → body → key → lookup → contact → run.
runs          2. A run moves on: claim → machine.step → state and effects in one transaction.
broadcasts    A message to an audience: previewed, frozen, sent, guarded, accounted for.
definitions   Automations and workflows: checked, activated, versioned, drawn.
files         Imports and exports of contacts, as files with a row for each.
accounts      People and their workspaces: registration, sign-in, invitations, closure.
messages      3. A message goes out: intent → channel → outcome.
consent       Opt-outs, keywords and preferences: who may be written to.
billing       Plans that are paid for, and the quotas that a plan sets.
audience      Contacts: addresses, profiles, segments, what follows from a change, erasure.
outbound      4. Others are notified: events recorded, signed, posted, tried again.
web           HTTP itself: the edge, routing, bodies, replies; knows no resource.
identity      The caller's identity: access tokens, API keys, roles, passwords.
audit         The audit trail: entries written with the act, chained and verified later.
process       State of one process, open from boot to shutdown; verbs and handlers take it first.
providers     Outside providers, one module each: channels, payments, single sign-on.
jobs          Hints to the workers that there is work, and leases of claimed rows.
store         SQL queries by table group, a typed function each; and the claims made of them.
database      The database engine: connections, dialects, transactions, migrations, ids.
net           The way out: the guarded HTTP client, public addresses, name resolution, TLS.
runtime       The base of every process: computing, batches, tasks, logs, metrics; no product.
vault         Secrets: encryption, signed and random tokens, signatures of events.
config        Settings and how they are parsed; plans, countries, time zones.
errors        Errors: every code with its status and title, and the exceptions that carry it.
machine       The interpreter: pure and synchronous; no clock, no I/O, nothing else of ours.
"""
