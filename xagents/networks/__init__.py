"""Networks: .cfg files, Keras models, inference in NumPy, compiled programs, optimisers."""
