"""The human at a terminal: what waits, answers to it, the agents, and the server itself."""
