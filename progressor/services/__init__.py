"""What makes its rounds: the scanner and the zombie collector."""
