"""A shop whose orders are packed by workers that may die at any moment."""
