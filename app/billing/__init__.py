"""Payment providers, all alike to the rest: Stripe, and the sandbox's own, which takes no money."""
