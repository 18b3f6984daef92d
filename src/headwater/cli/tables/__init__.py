"""The tables that pipelines made: `headwater sql`, and questions that a server is asked."""
