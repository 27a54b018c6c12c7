"""A network that no .cfg file can describe; Keras is loaded when it is built."""


def gated(input_shape, output_units, units=32):
    """Return two layers of which one opens and shuts the other, and a head for each output."""
    import keras

    observations = keras.Input(input_shape)
    flat = keras.layers.Flatten()(observations)
    gate = keras.layers.Dense(units, activation='sigmoid')(flat)
    hidden = keras.layers.Dense(units, activation='tanh')(flat) * gate
    return keras.Model(observations, [keras.layers.Dense(size)(hidden) for size in output_units])
