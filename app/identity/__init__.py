"""The caller's identity: access tokens, API keys, roles, passwords."""
