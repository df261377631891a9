"""Updates of variables in place: the variable, its slots and the gradient lie alike; rates are scalars."""

from collections.abc import Mapping

from pesto.split.tdl import Description, Index, Lambda, OpOperands, Value, opaque

NAMES = (
    "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp", "ResourceApplyAdaMax", "ResourceApplyAdadelta",
    "ResourceApplyAdagrad", "ResourceApplyAdagradV2", "ResourceApplyAdam", "ResourceApplyAdamWithAmsgrad",
    "ResourceApplyAddSign", "ResourceApplyCenteredRMSProp", "ResourceApplyFtrl", "ResourceApplyFtrlV2",
    "ResourceApplyGradientDescent", "ResourceApplyKerasMomentum", "ResourceApplyMomentum", "ResourceApplyPowerSign",
    "ResourceApplyProximalAdagrad", "ResourceApplyProximalGradientDescent", "ResourceApplyRMSProp",
)  # fmt: skip
"""Op types without an output, whose first input is the variable."""


def describe(op: OpOperands) -> list[Lambda]:
    """Element by element."""
    tensors = [op[number] for number in range(op.inputs)]

    def element(*i: Index) -> Value:
        result = Value()
        for tensor in tensors:
            result = result + (tensor[i] if tensor.rank else tensor[()])
        return result

    return [Lambda(tuple(f"i{d}" for d in range(tensors[0].rank)), element)]


def scatter(op: OpOperands) -> list[Lambda]:
    """Rows of a variable, picked by numbers: ResourceScatterAdd and its kin."""
    variable, indices, updates = op[0], op[1], op[2]

    def element(row: Index, *i: Index) -> Value:
        rows = (slice(None),) * indices.rank
        given = updates[(*rows, *i)] if updates.rank else updates[()]
        return variable[(row, *i)] + opaque(indices[rows])[row] + given

    return [Lambda(("row", *(f"i{d}" for d in range(1, variable.rank))), element)]


ROWS: Mapping[str, Description] = dict.fromkeys(NAMES, describe) | {
    f"ResourceScatter{kind}": scatter for kind in ("Add", "Sub", "Mul", "Div", "Min", "Max", "Update")
}
