"""TensorFlow's threads, which are fixed once it has started."""

from __future__ import annotations

import contextlib


def set_threads(threads: int) -> bool:
    """Set TensorFlow's threads, which are fixed once it has started; returns whether they are `threads` now."""
    import tensorflow as tf

    with contextlib.suppress(RuntimeError):
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    return threads_in_use() == threads


def threads_in_use() -> int:
    """Return TensorFlow's threads within an operation; 0 where it chooses itself."""
    import tensorflow as tf

    return tf.config.threading.get_intra_op_parallelism_threads()
