"""What can put a question before the human."""
