"""The formats of exported policies: how to write a policy, and how to run it in the runtime of its format."""

from __future__ import annotations

import importlib.util
import inspect
import json
import runpy
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from xagents.export import numpy_template
from xagents.export.c_program import COMPILERS, FLAGS, CompiledPolicy, find_compiler
from xagents.export.c_source import HEADER, c_header
from xagents.options.errors import OptionError, did_you_mean

if TYPE_CHECKING:
    from xagents.export.policy import ExportedPolicy

# maps the arrays of a batch of raw observations, by names of the inputs, to actions [N, …] by names of the outputs
PolicyFunction = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]
OPSET = 18
PAGE = 'policy.py'


class LoadedPolicy(NamedTuple):
    """A policy that was loaded from its file.

    Attributes:
        run: calls the policy.
        note: what the printed line says about the loaded policy.
        details: further keys of `policy.json`.
    """

    run: PolicyFunction
    note: str = ''
    details: Mapping[str, Any] = {}


class Format(NamedTuple):
    """A format of exported policies.

    Attributes:
        file: the name of the file in the folder; empty if the policy is the folder itself.
        packages: packages that the format requires in addition to TensorFlow.
        keeps_precision: whether the policy computes in the precision of the network, otherwise in float32.
        write: writes a policy to a path.
        load: loads a policy from a path; it also receives the exported policy, which describes inputs and outputs.
    """

    file: str
    packages: tuple[str, ...]
    keeps_precision: bool
    write: Callable[[ExportedPolicy, Path], None]
    load: Callable[[Path, ExportedPolicy], LoadedPolicy]


def find_format(name: str) -> Format:
    """Return a format by its name.

    Raises:
        OptionError: for an unknown format, or if a package that the format requires is not installed.
    """
    if name not in FORMATS:
        raise OptionError('format', f'got {name!r}, expected {", ".join(FORMATS)}{did_you_mean(str(name), FORMATS)}')
    if missing := [package for package in FORMATS[name].packages if importlib.util.find_spec(package) is None]:
        raise OptionError('format', f"{name} needs {', '.join(missing)}: pip install '.[export]'")
    return FORMATS[name]


def _write_numpy(policy: ExportedPolicy, path: Path) -> None:
    plan, arrays = policy.as_data()
    (path / numpy_template.PLAN).write_text(json.dumps(plan, allow_nan=False) + '\n')
    held: dict[str, Any] = arrays
    np.savez(path / numpy_template.WEIGHTS, **held)
    (path / PAGE).write_text(inspect.getsource(numpy_template))


def _load_numpy(path: Path, policy: ExportedPolicy) -> LoadedPolicy:
    # runs the written file, as its users do
    run = runpy.run_path(str(path / PAGE))['load'](path)

    def by_name(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        actions = run(arrays)
        return actions if isinstance(actions, dict) else {'actions': actions}

    return LoadedPolicy(by_name)


def _write_savedmodel(policy: ExportedPolicy, path: Path) -> None:
    import tensorflow as tf

    tf.saved_model.save(policy.module, str(path), signatures={'serving_default': policy.function})


def _load_savedmodel(path: Path, policy: ExportedPolicy) -> LoadedPolicy:
    import tensorflow as tf

    loaded = tf.saved_model.load(str(path))

    def run(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        # refers to `loaded`, because the signature does not keep the variables alive
        call = loaded.signatures['serving_default']
        outputs = call(**{name: tf.constant(array) for name, array in arrays.items()})
        return {name: output.numpy() for name, output in outputs.items()}

    return LoadedPolicy(run)


def _write_litert(policy: ExportedPolicy, path: Path) -> None:
    import tensorflow as tf

    # no Select or custom operations, so that every interpreter can run the file
    converter = tf.lite.TFLiteConverter.from_concrete_functions([policy.function], policy.module)
    path.write_bytes(converter.convert())


def _load_litert(path: Path, policy: ExportedPolicy) -> LoadedPolicy:
    if importlib.util.find_spec('ai_edge_litert') is not None:
        from ai_edge_litert.interpreter import Interpreter
    else:
        import tensorflow as tf

        Interpreter = tf.lite.Interpreter
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # TensorFlow warns that its interpreter is deprecated
        interpreter = Interpreter(model_path=str(path))
    interpreter.allocate_tensors()  # called here, because the caller suppresses the output about delegates
    runner = interpreter.get_signature_runner()
    return LoadedPolicy(lambda arrays: {name: output.copy() for name, output in runner(**arrays).items()})


def _write_onnx(policy: ExportedPolicy, path: Path) -> None:
    import onnx
    import tensorflow as tf
    import tf2onnx

    names = [specification.name for specification in policy.signature]

    def act(*observations: Any) -> Any:
        return policy.act(**dict(zip(names, observations, strict=True)))

    function = tf.function(act, autograph=False)
    model, _ = tf2onnx.convert.from_function(function, input_signature=policy.signature, opset=OPSET)
    if [value.name for value in model.graph.input] != names:
        raise ValueError('the network uses tensors that are not weights of a layer')
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = 'batch'
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())


def _load_onnx(path: Path, policy: ExportedPolicy) -> LoadedPolicy:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=['CPUExecutionProvider'])
    names = [output.name for output in session.get_outputs()]
    return LoadedPolicy(lambda arrays: dict(zip(names, session.run(names, arrays), strict=True)))


def _write_c(policy: ExportedPolicy, path: Path) -> None:
    path.write_text(c_header(policy))


def _load_c(path: Path, policy: ExportedPolicy) -> LoadedPolicy:
    compiler = find_compiler()
    if compiler is None:  # the comparison then concerns the plan from which the header was made
        plan, arrays = policy.as_data()
        computed = numpy_template.NumpyPolicy.from_data(json.loads(json.dumps(plan)), arrays)

        def run(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            return computed.outputs(numpy_template.nest(arrays, plan['inputs']), arrays.get('memory'))

        note = f'not compiled, because no C compiler ({", ".join(COMPILERS)}) is installed; its network in NumPy'
        return LoadedPolicy(run, note, {'compiled': None})
    compiled = CompiledPolicy(path, policy, compiler)
    nanoseconds = round(1e9 * compiled.seconds_per_call())
    flags = ' '.join(FLAGS)
    measured = {'compiler': compiled.compiler, 'flags': flags, 'bytes': compiled.size, 'nanoseconds': nanoseconds}
    note = f'{compiled.size / 1e3:.1f} kB compiled with -Os, {nanoseconds} ns per call;'
    return LoadedPolicy(compiled, note, {'compiled': measured})


FORMATS = {
    'savedmodel': Format('', (), True, _write_savedmodel, _load_savedmodel),
    'litert': Format('policy.tflite', (), False, _write_litert, _load_litert),
    'onnx': Format('policy.onnx', ('tf2onnx', 'onnx', 'onnxruntime'), False, _write_onnx, _load_onnx),
    'numpy': Format('', (), False, _write_numpy, _load_numpy),
    'c': Format(HEADER, (), False, _write_c, _load_c),
}
