"""Where experience comes from: environments, and a policy that acts in them."""
