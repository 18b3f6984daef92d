"""Access over HTTP: who sends a request, and whether they may."""
