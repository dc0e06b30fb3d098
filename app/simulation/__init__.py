"""A definition on paper: a virtual clock, cases, and how two traces compare."""
