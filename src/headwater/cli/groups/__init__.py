"""`headwater group`: groups, their settings, and how people and scripts see them."""
