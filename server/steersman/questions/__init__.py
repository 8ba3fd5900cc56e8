"""Questions to the human: the vocabulary, the checks and the service."""
