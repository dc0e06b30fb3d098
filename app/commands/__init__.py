"""Operators' commands: demo, doctor, start-up of a web process, care after a restore."""
