"""Contacts: addresses, profiles, segments, what follows from a change, erasure."""
