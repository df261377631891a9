"""Keys of functions and arguments, equal where names alone differ, so that equal bodies are inferred once."""

import hashlib
from collections.abc import Mapping
from typing import Any

from tensorflow.core.framework import function_pb2, node_def_pb2

_NAMES = ("_class", "container", "debug_name", "shared_name")
"""Attributes of an op that say which object it is, on which no shape and no work depends."""


class FunctionKeys:
    """Keys of the functions of one library, each made once."""

    def __init__(self) -> None:
        """Start without keys."""
        self._made: dict[str, str] = {}

    def key(self, function: Any, library: Mapping[str, Any]) -> str:
        """Return a digest of a FunctionDef that is the same for functions which differ in names only.

        Functions that it calls count by their own digests; one that calls itself counts by its name there.
        """
        name = function.signature.name
        if name not in self._made:
            self._made[name] = name  # what a function that calls itself finds
            self._made[name] = hashlib.sha256(self._renamed(function, library)).hexdigest()
        return self._made[name]

    def _renamed(self, function: Any, library: Mapping[str, Any]) -> bytes:
        """Return the bytes of a FunctionDef whose arguments, nodes and results are numbered."""
        numbered = {argument.name: f"a{i}" for i, argument in enumerate(function.signature.input_arg)}
        numbered |= {node.name: f"n{i}" for i, node in enumerate(function.node_def)}
        copy = function_pb2.FunctionDef()
        for argument in function.signature.input_arg:
            copy.signature.input_arg.add().CopyFrom(argument)
            copy.signature.input_arg[-1].name = numbered[argument.name]
        for i, result in enumerate(function.signature.output_arg):
            copy.ret[f"r{i}"] = _numbered_name(function.ret[result.name], numbered)
        for i, effect in enumerate(sorted(numbered.get(n, n) for n in function.control_ret.values())):
            copy.control_ret[f"e{i}"] = effect
        for node in function.node_def:
            made = copy.node_def.add()
            made.CopyFrom(node)
            made.name = numbered[node.name]
            made.input[:] = [_numbered_name(tensor, numbered) for tensor in node.input]
            self._forget_names(made, library)
        for name, value in function.attr.items():
            if not name.endswith("_function_name"):
                copy.attr[name].CopyFrom(value)
        return copy.SerializeToString(deterministic=True)

    def _forget_names(self, node: Any, library: Mapping[str, Any]) -> None:
        """Take off a NodeDef what names an object, and put the digests of functions in place of their names."""
        node.ClearField("device")
        node.ClearField("experimental_debug_info")
        if node.op in library:
            node.op = self.key(library[node.op], library)
        for name in _NAMES:
            node.attr.pop(name, None)
        for value in node.attr.values():
            held = [value.func] if value.HasField("func") else value.list.func if value.HasField("list") else ()
            for called in held:
                if called.name in library:
                    called.name = self.key(library[called.name], library)

    def argument_key(self, argument: Any) -> bytes:
        """Return the bytes of a NodeDef that stands for a function's argument, without names."""
        copy = node_def_pb2.NodeDef()
        copy.CopyFrom(argument)
        copy.ClearField("name")
        self._forget_names(copy, {})
        return copy.SerializeToString(deterministic=True)


def _numbered_name(tensor: str, numbered: Mapping[str, str]) -> str:
    """Return a tensor's or control input's name with the number of the node that makes it."""
    control = "^" if tensor.startswith("^") else ""
    name, colon, rest = tensor.removeprefix("^").partition(":")
    return f"{control}{numbered.get(name, name)}{colon}{rest}"
