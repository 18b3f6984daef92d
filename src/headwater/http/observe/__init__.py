"""What operators see: metrics, figures for charts, the access log, and traces."""
