"""Collecting in other processes: orders go out, fragments come back. Loads no TensorFlow."""

import os

# gRPC's own log, of handshakes that fail and the like, says nothing that errors do not say
os.environ.setdefault('GRPC_VERBOSITY', 'NONE')
