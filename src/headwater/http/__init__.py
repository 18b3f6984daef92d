"""HTTP: translates requests into commands and replies into responses. Decides nothing."""
