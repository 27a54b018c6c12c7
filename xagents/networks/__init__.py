"""Networks: described in .cfg files, built in Keras, called in NumPy, compiled, optimised."""
