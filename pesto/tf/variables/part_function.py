"""One function of a part of a divided `If`, made of nodes of the whole branch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from pesto.tf.nodes.captured import copy_node
from pesto.tf.variables.branch_function import BranchFunction, data_inputs, source_node
from pesto.tf.variables.variable_parts import VariableParts

SHARED, READ = "pesto_shared", "pesto_read"
"""Parts of the names of what is computed for several parts, and of what is read in front of them."""


@dataclass(frozen=True, slots=True, eq=False)
class PartFunction:
    """A function of a part, as it is put together."""

    branch: BranchFunction
    number: int
    """Number of the branch."""
    outside: Mapping[str, int]
    """Op of the branch -> the variable whose value, read in front of the parts, it gives."""
    shared: Mapping[str, int]
    """Tensor that is computed for several parts -> its number."""
    nodes: list[Any] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    """Nodes that have changed or read a variable when the function is done."""
    slots: set[int] = field(default_factory=set)
    """Arguments of the whole `If` that it takes."""
    reads: dict[int, Any] = field(default_factory=dict)
    """Variable whose value it takes -> an op that reads it in the branch."""
    values: set[int] = field(default_factory=set)
    """Numbers of the shared tensors that it takes."""
    results: list[tuple[str, int]] = field(default_factory=list)
    """(tensor, data type) of what it returns."""

    @classmethod
    def of(
        cls, parts: VariableParts, number: int, kept: set[str], part: int | None, shared: Mapping[str, int]
    ) -> "PartFunction":
        """The function of a part (None for the shared one) with the nodes `kept`; `shared` are tensors of others."""
        branch = parts.branches[number]
        own = {v for v in parts.above if parts.find(v) == part} if part is not None else set[int]()
        outside = {name: v for name, v in branch.reads.items() if name in kept and v not in own}
        made = cls(branch, number, outside, shared)
        for name in branch.nodes:
            if name in outside and name in kept:
                made.reads[outside[name]] = branch.nodes[name]
            elif name in kept:
                node = copy_node(branch.nodes[name])
                data = [made.renamed(text) for text in data_inputs(node)]
                controls = [text[1:] for text in node.input if text[0] == "^"] if part is not None else []
                waits = [w for c in controls for w in made._waits(c, kept, parts, part)]
                node.input[:] = [*data, *sorted({f"^{w}" for w in waits})]
                made.nodes.append(node)
                made.ends.extend([name] if name in branch.held or name in branch.reads else [])
        return made

    def renamed(self, text: str) -> str:
        """Return the name of a tensor of the branch in the part."""
        name = source_node(text)
        if name in self.outside:
            return f"{READ}_{self.outside[name]}"
        if text in self.shared:
            self.values.add(self.shared[text])
            return f"{SHARED}_{self.shared[text]}"
        if name in self.branch.slot:
            self.slots.add(self.branch.slot[name])
            return f"argument_{self.branch.slot[name]}"
        return text

    def _waits(self, name: str, kept: set[str], parts: VariableParts, part: int | None) -> list[str]:
        """The nodes of the part to wait for in place of `name`."""
        if name in self.outside:
            return []
        if name in kept:
            return [name]
        return [e for e in self.branch.before(name) if parts.part_of(self.branch, e) == part]

    def add_result(self, k: int, text: str, of: BranchFunction) -> None:
        """Return a tensor of a branch, from the other branch zeros like it."""
        dtype = of.dtype(text)
        if of is not self.branch:
            sizes = [d.size for d in of.shape(text).dim]
            zeros = node_def_pb2.NodeDef(name=f"pesto_zeros_{k}", op="Const")
            zeros.attr["dtype"].type = dtype
            value = np.zeros(sizes, tf.as_dtype(dtype).as_numpy_dtype)
            zeros.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, dtype, sizes))
            self.nodes.append(zeros)
            text = f"{zeros.name}:output:0"
        self.results.append((self.renamed(text), dtype))

    def finish(
        self, name: str, slots: Sequence[int], reads: Sequence[tuple[int, int]], values: Sequence[tuple[int, int]]
    ) -> Any:
        """The FunctionDef, with these arguments."""
        old = self.branch.function
        made = type(old)()
        made.signature.name = name
        for key, attr in old.attr.items():
            if key != "_input_shapes":
                made.attr[key].CopyFrom(attr)
        place = {slot: k for k, slot in reversed(list(enumerate(self.branch.slot.values())))}
        for k, slot in enumerate(slots):
            made.signature.input_arg.add(name=f"argument_{slot}", type=old.signature.input_arg[place[slot]].type)
            if place[slot] in old.arg_attr:
                made.arg_attr[k].CopyFrom(old.arg_attr[place[slot]])
        for variable, dtype in reads:
            made.signature.input_arg.add(name=f"{READ}_{variable}", type=dtype)
        for k, dtype in values:
            made.signature.input_arg.add(name=f"{SHARED}_{k}", type=dtype)
        for k, (text, dtype) in enumerate(self.results):
            made.signature.output_arg.add(name=f"output_{k}", type=dtype)
            made.ret[f"output_{k}"] = text
        made.node_def.extend(self.nodes)
        for end in self.ends:
            made.signature.control_output.append(end)
            made.control_ret[end] = end
        made.signature.is_stateful = bool(self.ends)
        return made
