"""A definition walked on paper: cases, the scene they set, the trace, how two traces compare."""
