"""The number of threads of TensorFlow, which cannot change after TensorFlow has started."""

from __future__ import annotations

import contextlib


def set_threads(threads: int) -> bool:
    """Set the number of threads of TensorFlow, if it has not started yet.

    Returns:
        Whether TensorFlow uses `threads` threads now.
    """
    import tensorflow as tf

    with contextlib.suppress(RuntimeError):
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    return threads_in_use() == threads


def threads_in_use() -> int:
    """Return the number of threads that TensorFlow uses within an operation; 0 if TensorFlow chooses it."""
    import tensorflow as tf

    return tf.config.threading.get_intra_op_parallelism_threads()
