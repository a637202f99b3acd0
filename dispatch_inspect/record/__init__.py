"""Recording: modes, patches and readers that turn a running program into a trace."""
