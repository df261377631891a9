"""What can be said of a source in a moment, before TensorFlow is loaded, which takes seconds."""

import os
import shlex
from pathlib import Path

from pesto.core.errors import FileError, UsageError
from pesto.core.files.json import shown
from pesto.core.source import EVERYTHING, GRAPH_DEF, Source


def precheck(source: Source) -> None:
    """UsageError for a model or a function that cannot be, InputError for a file that is no graph or lacks a fetch.

    FileError for what is not there. What passes may be refused later.
    """
    if source.model is not None:
        from pesto.tf.models import find

        try:
            find(source.model, source.variant)
        except ValueError as error:
            raise UsageError.build(f"model: {error}", remedy="see pesto models") from error
    if source.file is not None and source.file.suffix in GRAPH_DEF:
        from pesto.tf.nodes.graph_def_bytes import look

        look(source.file, () if source.fetch == EVERYTHING else source.fetch)
    if source.saved_model is not None:
        folder = source.saved_model
        if not folder.is_dir():
            raise FileError.build(
                "no such folder", where=folder, remedy="name the one that the SavedModel was written to"
            )
        if not any((folder / f"saved_model.{ending}").exists() for ending in ("pb", "pbtxt")):
            raise FileError.build(
                "no saved_model.pb is in it", where=folder, remedy="name the folder that the SavedModel was written to"
            )
    if source.function is not None:
        _callable(source.function)


def _callable(reference: str) -> None:
    """UsageError for what is no package.module:callable, with the name of the module where a file's path is given."""
    module, _, attribute = reference.partition(":")
    if not module or not attribute:
        raise UsageError.build(
            f"function {shown(reference)}: no name of a callable", remedy="give package.module:callable"
        )
    if "/" not in module and not module.endswith(".py"):
        return
    path = Path(os.path.normpath(module.removesuffix(".py")))
    inside = all(part.isidentifier() for part in path.parts)  # a folder from which a module is imported by its dots
    name = f"{'.'.join(path.parts) if inside else path.name}:{attribute}"
    there = "" if inside else f"PYTHONPATH={shlex.quote(str(path.parent))} "
    raise UsageError.build(
        f"function {shown(reference)}: the name of a module is wanted, not its path",
        remedy=f"give {shown(name)}, for example {there}pesto inspect {shlex.quote(name)}",
    )
