"""What a running daemon shows of itself."""
