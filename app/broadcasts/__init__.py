"""A message to an audience: previewed, frozen, sent, guarded, accounted for."""
