"""What bench/peers.py races: a module for each library, and what they have in common."""
