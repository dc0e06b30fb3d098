"""The way out: the guarded HTTP client, public addresses, name resolution, TLS."""
