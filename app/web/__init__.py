"""HTTP itself: the edge, routing, bodies, replies; knows no resource."""
