"""Secrets: encryption, signed and random tokens, signatures of events."""
