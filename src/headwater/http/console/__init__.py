"""The page that shows a server in a browser: no build, no dependencies, served as it is here."""
