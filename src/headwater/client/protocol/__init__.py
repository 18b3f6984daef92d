"""What goes over the wire and what it means: requests, answers, state machines. No IO."""
