"""Tidings: an event comes in, a run moves on, a message goes out.

Read the house floor by floor, top down; no import points back up:

main, __main__      wiring, and the command line
doctor, demo        what is wrong with a configuration; a workspace to begin with
routes/             one module per endpoint group: shapes, handlers, routes
web/                HTTP itself: edge, routing, bodies, replies; knows no resource

intake              1. an event comes in: webhook → contact → run row
  webhooks/            looked up, accepted many in one transaction, written down, tried again
runner              2. a run moves on: claim → machine.step → one transaction
  runs/                what it waited for, what it sees, what its steps do; steered by hand
delivery            3. a message goes out: intent → channel → outcome
  messages/            made, composed, held back, settled, reported upon

definitions/        automations and workflows: checked, activated, credentials sealed
simulations/        a definition walked on paper, and how two runs compare
drawing/            a definition as a picture
contacts/           people: written, found, imported, exported, opted out, erased
accounts/           who is calling: accounts, sessions, keys, invitations, sign-in
events, posting     what others are told, and how it reaches them
paying, billing/    what a workspace pays for, and its provider
plans, quotas       what a workspace may have, and how much of it it has
audit/              who changed what, in a chain that shows tampering
closure             a workspace goes
retention, restoring   what is old goes; what a backup says is due waits

machine/            the interpreter: pure, knows nothing of the rest
channels/           one module per way out
store/              SQL; one module per table group
process             what one process holds open: settings, database, queue, vault, channels
queue, vault, egress   hints, secrets, the guarded way out
tokens              random and derived ones, in base62
standard_webhooks   how events are signed
runtime/            processes, batches, tasks, leases, logs, metrics
config, casts, places, errors   settings and how they are read, countries and zones, problems
"""
