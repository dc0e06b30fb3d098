"""Hints to the workers that there is work, and leases of claimed rows."""
