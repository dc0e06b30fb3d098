"""Tidings: an event comes in, a run moves on, a message goes out.

The layers, top to bottom; no import points back up:

main, __main__      wiring, and the command line
startup             a web process that waits for its database
doctor, demo        what is wrong with an installation; a workspace to start with
routes/             one module per endpoint group: shapes, handlers, routes
web/                HTTP itself: edge, routing, bodies, replies; knows no resource

intake              1. an event comes in: webhook → contact → run row
  webhooks/            looked up, accepted in batches, recorded, retried
runner              2. a run moves on: claim → machine.step → one transaction
  runs/                signals, facts, effects of steps; manual control
delivery            3. a message goes out: intent → channel → outcome
  messages/            created, composed, held back, settled, reported on

definitions/        automations and workflows: checked, activated, credentials sealed
simulations/        a definition run without effects, and how two runs compare
drawing/            a definition as a picture
contacts/           people: created, found, imported, exported, opted out, erased
accounts/           who is calling: accounts, sessions, keys, invitations, sign-in
events, posting     outbound events, and their delivery
paying, billing/    what a workspace pays for, and its provider
plans, quotas       what a workspace may have, and how much of it is used
audit/              who changed what, in a chain that shows tampering
closure             the deletion of a workspace
retention, restoring   old rows are deleted; what a restored backup says is due is parked

machine/            the interpreter: pure, imports nothing else of ours
channels/           one module per provider
store/              SQL; one module per table group
process             what one process holds open: settings, database, queue, vault, channels
queue, vault, egress   hints, secrets, the guarded HTTP client
tokens              random and derived tokens, in base62
standard_webhooks   how events are signed
runtime/            processes, batches, tasks, leases, logs, metrics
config, casts, places, networks, errors   settings and how they are parsed, countries and time
                    zones, which addresses are public, problems
"""
