"""Tidings: an event comes in, a run moves on, a message goes out.

Read the house floor by floor, top down; no import points back up:

main, __main__    wiring and the command line
routes/           one module per endpoint group: shapes, handlers, routes
web/              HTTP itself: edge, routing, bodies, replies; knows no resource
intake            1. an event comes in     (webhook → contact → run row)
runner            2. a run moves on        (claim → machine.step → one transaction)
delivery          3. a message goes out    (intent → channel → outcome)
joining, accounts, letters, closure        people come in, and workspaces go
imports, exports, activation               files of contacts; a definition becomes active
audience, identity, facts, profile         what two tables or two systems share
process           what one process holds open: settings, database, queue, vault, channels
machine/          the interpreter: pure, knows nothing of the rest
channels/ store/ queue vault               ways out, SQL, hints, secrets
"""
