"""`headwater group`: groups, their settings, and how they are shown."""
