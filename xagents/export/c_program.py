"""Compilation of an exported header with an installed C compiler, and calls of the compiled policy."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from xagents.export.c_source import HEADER, action_fields, observation_fields, struct_dtype

if TYPE_CHECKING:
    from xagents.export.policy import ExportedPolicy

COMPILERS = ('cc', 'gcc', 'clang')
FLAGS = ('-std=c99', '-Os')
_MAX_SECONDS = 600
# a time is the shortest of several measurements of at least this duration
_REPEATS, _SECONDS = 10, 0.01


def find_compiler() -> str | None:
    """Return the path of an installed C compiler, or None."""
    return next((path for name in COMPILERS if (path := shutil.which(name))), None)


def run_compiler(command: Sequence[str], folder: str | Path) -> None:
    """Run a compiler in a folder.

    Raises:
        RuntimeError: with the first error of the compiler.
    """
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_MAX_SECONDS)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if 'error' in line] or done.stderr.splitlines()
        problem = re.sub(r'\S*/(?=policy\.)', '', lines[0]) if lines else f'exit code {done.returncode}'
        raise RuntimeError(f'{Path(command[0]).name} failed: {problem}')


class CompiledPolicy:
    """A policy that a C compiler made from an exported header.

    Attributes:
        compiler: the name of the compiler.
        size: the bytes of code and constants of the compiled object.

    Args:
        header: the path of the header.
        policy: the exported policy, for the names and types of its inputs and outputs.
        compiler: the compiler.
        flags: flags of the compiler.

    Raises:
        RuntimeError: if the header does not compile.
    """

    def __init__(self, header: Path, policy: ExportedPolicy, compiler: str, flags: Sequence[str] = FLAGS):
        self.compiler = Path(compiler).name
        self._taken, self._returned = observation_fields(policy), action_fields(policy)
        self._policy, self._inputs = policy, struct_dtype(self._taken)
        self._outputs = struct_dtype(self._returned)
        memory = 'policy_memory *memory, ' if policy.memory_units else ''
        own = 'memory + i, ' if policy.memory_units else ''
        source = (
            f'#include "{HEADER}"\n'
            f'void xagents_act(int n, const policy_observation *observations, {memory}policy_action *actions);\n'
            f'void xagents_act(int n, const policy_observation *observations, {memory}policy_action *actions)\n'
            f'{{\n    for (int i = 0; i < n; i++)\n        policy_act(observations + i, {own}actions + i);\n}}\n'
        )
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / 'policy.c').write_text(source)
            # the stack of a thread may be smaller than the scratch array of a large network
            flags = [*flags, '-DPOLICY_SCRATCH=static', f'-I{header.parent.resolve()}', '-fPIC']
            common = [compiler, *flags, '-c', 'policy.c', '-o', 'policy.o']
            run_compiler(common, folder)
            run_compiler([compiler, '-shared', 'policy.o', '-lm', '-o', 'policy.so'], folder)
            self.size = _object_size(Path(folder) / 'policy.o')
            self._act = ctypes.CDLL(str(Path(folder) / 'policy.so')).xagents_act
        self._act.restype = None

    def __call__(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return actions, arrays [N, …] by names of the outputs, for arrays by names of the inputs."""
        from xagents.export.policy import MEMORY_INPUT, MEMORY_OUTPUT

        observations, memory = self._as_structs(arrays), arrays.get(MEMORY_INPUT)
        after = None if memory is None else np.array(memory, np.float32)
        actions = np.zeros(len(observations), self._outputs)
        self._call(observations, after, actions)
        n, outputs = len(actions), zip(self._returned, self._policy.outputs, strict=True)
        found = {
            field.key: actions[field.name].reshape(n, *field.shape).astype(output.space.dtype)
            for field, output in outputs
        }
        return found if after is None else {**found, MEMORY_OUTPUT: after}

    def seconds_per_call(self) -> float:
        """Measure the processor time of one call, in seconds."""
        observations = self._as_structs(self._policy.arrays)
        memory = np.zeros((len(observations), self._policy.memory_units), np.float32)
        actions = np.zeros(len(observations), self._outputs)
        times = []
        for _ in range(_REPEATS):
            calls, start = 0, time.thread_time()
            while (elapsed := time.thread_time() - start) < _SECONDS or not calls:
                self._call(observations, memory if self._policy.memory_units else None, actions)
                calls += len(observations)
            times.append(elapsed / calls)
        return min(times)

    def _as_structs(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        observations = np.zeros(len(arrays[self._taken[0].key]), self._inputs)
        for field in self._taken:
            observations[field.name] = arrays[field.key].reshape(observations[field.name].shape)
        return observations

    def _call(self, observations: np.ndarray, memory: np.ndarray | None, actions: np.ndarray) -> None:
        arrays = [observations, *([] if memory is None else [memory]), actions]
        self._act(len(actions), *(array.ctypes.data_as(ctypes.c_void_p) for array in arrays))


def _object_size(path: Path) -> int:
    """Return the bytes of code and data of an object file by the command `size`, or those of the file without it."""
    if size := shutil.which('size'):
        done = subprocess.run([size, path.name], cwd=path.parent, capture_output=True, text=True, timeout=60)
        numbers = done.stdout.splitlines()[-1].split()[:2] if done.returncode == 0 and done.stdout else []
        if len(numbers) == 2 and all(number.isdigit() for number in numbers):
            return sum(map(int, numbers))
    return path.stat().st_size
