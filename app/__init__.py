"""Tidings: an event comes in, a run moves on, a message goes out.

Read the house floor by floor, top down; no import points back up:

main, __main__    wiring and the command line
routes/           one module per endpoint group: shapes, handlers, routes
cases, scenes     what a simulation is given, by a request or in a file
web/              HTTP itself: edge, routing, bodies, replies; knows no resource
intake            1. an event comes in     (webhook → contact → run row): lookup, and acceptance
                     of many in one transaction, with webhook_requests, what is kept of each
runner            2. a run moves on        (claim → machine.step → one transaction): arrivals, what
                     it waited for, and programs, what it walks
simulation, traces   the same on paper, and how two runs compare
delivery          3. a message goes out    (intent → channel → outcome): ordering, how it is made,
                     composing, what it says, settling, how it ended, parking, what has to wait
single_sign_on, joining, accounts, letters, closure   people come in, and workspaces go
retention, restoring                       what is old goes; what a backup says is due waits
paying                                     what a workspace pays for
imports, exports, activation               files of contacts; a definition becomes active
audience, facts, mentions, credentials, profile   what two tables or two systems share
consent, preferences, keywords              who may be written to; links and words that say so
events, posting                            what others are told, and how it reaches them
quotas, plans                              what a workspace may have, and how much of it it has
signing_in, identity, keyring, passwords   who is calling, and what they show for it
retrying, picking         refused events once more; which paths would find a contact
process           what one process holds open: settings, database, queue, vault, channels
machine/          the interpreter: pure, knows nothing of the rest
channels/ billing/ store/ queue vault      ways out, SQL, hints, secrets
drawing/          a definition as a picture
"""
