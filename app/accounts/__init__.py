"""People and their workspaces: registration, sign-in, invitations, closure."""
