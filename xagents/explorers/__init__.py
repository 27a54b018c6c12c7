"""Collecting in other processes: the learner sends assignments to rollout workers, which return fragments of rollouts.

A rollout worker is an *explorer* in flags, messages and the documentation. An assignment is a *task* there. The package
does not import TensorFlow.
"""

import os

# gRPC's own log, for example of failed handshakes, contains nothing that the errors do not contain
os.environ.setdefault('GRPC_VERBOSITY', 'NONE')
