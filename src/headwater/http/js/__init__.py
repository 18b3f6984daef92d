"""The browser module: plain ES modules without a build step, served and packaged as they are."""
