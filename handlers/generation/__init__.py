"""Text generation: how tokens are chosen, and the loop that appends them."""
