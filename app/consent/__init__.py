"""Opt-outs, keywords and preferences: who may be written to."""
