"""HTTP itself: the edge, routing, bodies, replies. Knows no resource."""
