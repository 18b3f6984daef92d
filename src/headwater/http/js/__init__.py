"""The browser module: plain ES modules without a build step, served and packed as they are here."""
