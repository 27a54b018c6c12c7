"""Parts of observations: vectors, images, action masks, and parts for critics."""
