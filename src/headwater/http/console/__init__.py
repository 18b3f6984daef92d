"""The page that shows a server in a browser: no build, no dependencies, sent as it is here."""
