"""What is counted, logged and traced."""
