"""Who is calling, and what they show for it: accounts, sessions, keys, invitations, sign-in."""
