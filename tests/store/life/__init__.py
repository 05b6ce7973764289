"""A store's life at random, and the calm store that it is compared with."""
