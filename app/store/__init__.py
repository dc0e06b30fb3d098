"""SQL queries by table group, a typed function each; and the claims made of them."""
