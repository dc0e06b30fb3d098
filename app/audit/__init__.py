"""The audit trail: entries written with the act, chained and verified later."""
