"""What delivery.py leads to: messages made, composed, held back, settled, reported upon."""
