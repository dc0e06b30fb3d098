"""What runner.py leads to: what a run waited for, what it sees, what its steps do to the world."""
