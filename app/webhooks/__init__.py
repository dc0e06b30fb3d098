"""What intake.py leads to: events looked up, accepted together, written down, tried again."""
