"""From the handler string of a manifest to something that can be called with a batch."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from marserve.archiver.errors import HandlerLoadError
from marserve.handlers.context import Context
from marserve.worker.imports import preload_mentioned

Handle = Callable[[list[dict[str, Any]], Context], Any]

BUILTIN = {
    "base_handler": "marserve.handlers.base",
    "densenet_handler": "marserve.handlers.densenet_handler",
    "image_classifier": "marserve.handlers.image_classifier",
    "image_segmenter": "marserve.handlers.image_segmenter",
    "mlserver_runtime": "marserve.handlers.mlserver.runtime",
    "object_detector": "marserve.handlers.object_detector",
    "text_classifier": "marserve.handlers.text_classifier",
    "transformer_handler": "marserve.handlers.transformer",
    "triton_decoupled": "marserve.handlers.triton.decoupled_model",
    "triton_program": "marserve.handlers.triton.program_model",
    "triton_python": "marserve.handlers.triton.python_model",
}


def load_handler(
    handler: str,
    model_dir: str,
    context: Context,
    runner: asyncio.Runner | None = None,
    concurrent: bool = False,
) -> Handle:
    """Imports a handler and lets it initialize itself.

    Args:
        handler: ``module`` or ``module.py``, maybe with ``:function`` or ``:Class``; or a built-in.
        model_dir: Directory of the unpacked archive; its files can be imported by the handler.
        context: Passed to the handler's own initialization.
        runner: Has the event loop of the handler's coroutines, the first call and all later ones.
        concurrent: Whether the entry point must be, and stays, a coroutine function.

    Returns:
        What is called with the rows of a batch and the context.

    Raises:
        HandlerLoadError: If the handler does not exist or has no entry point.
        Exception: Whatever the handler's own code raises while it is imported or initialized.
    """
    module, entry = _find(handler, model_dir)
    runner = runner or asyncio.Runner()
    handle = _entry_point(module, handler, entry, context, runner)
    if concurrent and not inspect.iscoroutinefunction(handle):
        raise HandlerLoadError(
            f'handler "{handler}": asyncCommunication: true needs "async def handle"'
        )
    return handle if concurrent else _synchronous(handle, runner)


def preload_handler(handler: str, model_dir: str) -> None:
    """Imports a handler and what it will need, without loading a model.

    Raises:
        Exception: Whatever the handler's own code raises while it is imported.
    """
    _find(handler, model_dir)
    preload_mentioned(model_dir, handler)


def _find(handler: str, model_dir: str) -> tuple[ModuleType, str]:
    _make_importable(model_dir)
    path, _, entry = handler.partition(":")
    return _import(os.path.basename(path).removesuffix(".py"), model_dir), entry


def _make_importable(model_dir: str) -> None:
    """The archive's own modules come first, here and in whatever processes the handler starts."""
    if model_dir in sys.path:
        return
    sys.path.insert(0, model_dir)
    inherited = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [model_dir, inherited]))


def _import(name: str, model_dir: str) -> ModuleType:
    """A file of the archive wins over a built-in; which one it is is decided before importing."""
    file = Path(model_dir, f"{name}.py")
    if file.is_file():
        return _import_file(name, file)
    if name in BUILTIN:
        return importlib.import_module(BUILTIN[name])
    if importlib.util.find_spec("ts.torch_handler") and _exists(f"ts.torch_handler.{name}"):
        return importlib.import_module(f"ts.torch_handler.{name}")
    raise HandlerLoadError(
        f'handler "{name}": the archive has no file {name}.py and there is no built-in of that name'
        f" (built-in: {', '.join(sorted(BUILTIN))})"
    )


def _exists(module: str) -> bool:
    return module.rpartition(".")[2].isidentifier() and importlib.util.find_spec(module) is not None


def _import_file(name: str, file: Path) -> ModuleType:
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(file):
        return known  # imported before this process was forked
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise HandlerLoadError(f'handler "{name}": {file.name} is not a Python file')
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _entry_point(
    module: ModuleType, handler: str, entry: str, context: Context, runner: asyncio.Runner
) -> Handle:
    found = getattr(module, entry or "handle", None)
    if inspect.isclass(found):
        return _instantiate(found, context, runner)
    if callable(found):
        _synchronous(found, runner)(
            None, context
        )  # function style: called once without data to initialize itself
        return found  # type: ignore[no-any-return]
    if entry:
        raise HandlerLoadError(f'handler "{handler}": {module.__name__} has no "{entry}"')
    return _instantiate(_only_class(module, handler), context, runner)


def _only_class(module: ModuleType, handler: str) -> type:
    """The one handler class that the module defines; a base of another one does not count."""
    own = [
        c
        for c in vars(module).values()
        if inspect.isclass(c) and c.__module__ == module.__name__ and hasattr(c, "handle")
    ]
    own = [c for c in own if not any(c is not other and issubclass(other, c) for other in own)]
    if len(own) == 1:
        return own[0]
    found = ", ".join(c.__name__ for c in own) or "none"
    raise HandlerLoadError(
        f'handler "{handler}": expected a function "handle" or one class with a method "handle",'
        f" found {found} (name one as {module.__name__}:NAME)"
    )


def _instantiate(cls: type, context: Context, runner: asyncio.Runner) -> Handle:
    instance = cls()
    if hasattr(instance, "initialize"):
        _synchronous(instance.initialize, runner)(context)
    handle: Handle = instance.handle
    return handle


def _synchronous(function: Callable[..., Any], runner: asyncio.Runner) -> Callable[..., Any]:
    """A coroutine function runs on an event loop that lives as long as the worker."""
    if not inspect.iscoroutinefunction(function):
        return function
    loop = runner.get_loop()

    def run(*args: Any) -> Any:
        return loop.run_until_complete(function(*args))

    watched: Any = run  # the handler behind it can still be found
    watched.handler = getattr(function, "__self__", None)
    return run
