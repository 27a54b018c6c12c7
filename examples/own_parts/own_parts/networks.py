"""A network that a .cfg file cannot describe. Keras is imported only when the network is built."""


def gated(input_shape, output_units, units=32):
    """Return a model of two layers, one of which gates the other, and one head for each output."""
    import keras

    observations = keras.Input(input_shape)
    flat = keras.layers.Flatten()(observations)
    gate = keras.layers.Dense(units, activation='sigmoid')(flat)
    hidden = keras.layers.Dense(units, activation='tanh')(flat) * gate
    return keras.Model(observations, [keras.layers.Dense(size)(hidden) for size in output_units])
