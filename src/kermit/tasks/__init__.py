"""Tasks: each is data, a canvas builder and a metric."""
