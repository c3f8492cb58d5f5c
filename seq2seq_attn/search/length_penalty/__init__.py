"""Length penalties, which divide the log-probability of a translation."""
