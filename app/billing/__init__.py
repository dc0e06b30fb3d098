"""Plans that are paid for, and the quotas that a plan sets."""
