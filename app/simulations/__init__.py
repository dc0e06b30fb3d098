"""A definition simulated: cases, their scenario, the trace, how two traces compare."""
