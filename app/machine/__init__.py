"""The interpreter: pure and synchronous; no clock, no I/O, nothing else of ours."""
