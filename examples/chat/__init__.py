"""An AI chat whose answers survive a reload."""
