"""2. A run moves on: claim → machine.step → state and effects in one transaction."""
