"""The tables that pipelines made: `headwater sql`, and queries sent to a server."""
