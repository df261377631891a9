"""The variables of the paper's program by its letters, as PuLP has them."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pulp import LpAffineExpression, LpBinary, LpConstraint, LpContinuous, LpVariable, lpSum

from solvers.milp.paper import letters
from solvers.milp.paper.affine import Affine
from solvers.milp.paper.program import Pairs, ordered
from solvers.milp.paper.rows import Held, PaperModel, shared_links

Term = Any
"""An `LpVariable`, or the number that it always is. PuLP has no types of its own."""
Number = Any
"""An `LpAffineExpression`, or a `Term`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Symbols:
    """Symbols of the constraints. Activities are the n tasks, then the t transfers; times are in units."""

    model: PaperModel
    M: float
    """The horizon, which does for M, M_s and M_l."""
    C_max: LpVariable
    S: list[LpVariable]
    """[n + t] start of each activity."""
    C: list[LpVariable]
    """[n + t] completion of each activity."""
    z: list[Term]
    """[t] whether a transfer happens."""
    x: list[list[LpVariable | None]]
    """[u, B] the bits of the code of each unit's location, None for one that is the same wherever it can be."""
    core: list[list[LpVariable | None]]
    """[n, W] the bits of the code of each task's device at its location, None likewise."""
    delta: tuple[dict[tuple[int, int], LpVariable], dict[tuple[int, int], LpVariable]]
    """True if i comes first, by pairs of tasks and by pairs of transfers."""
    links: list[Held]
    """The paths of each link."""
    columns: list[LpVariable]
    """[c] all of the above, and those of `new`, as they were made."""
    forced: list[tuple[LpVariable, Number]] = field(default_factory=list)
    """Variables that are no greater than `least` demands."""

    def new(self, name: str) -> LpVariable:
        """One more variable from 0 to 1."""
        self.columns.append(LpVariable(name, 0, 1))
        return self.columns[-1]

    def least(self, variable: LpVariable, value: Number) -> LpConstraint:
        """variable >= value, for variables that are no greater than such rows demand."""
        self.forced.append((variable, value))
        return variable >= value

    def unit(self, i: int) -> int:
        """The unit of a task: its group, or itself."""
        return int(self.model.codes.units.unit[i])

    def bit(self, i: int, bit: int) -> Term:
        """x_i, y_i, ...: a bit of the code of a task's location."""
        u = self.unit(i)
        variable = self.x[u][bit]
        return int(self.model.codes.fixed[u]) >> bit & 1 if variable is None else variable

    def away(self, i: int, place: int) -> LpAffineExpression:
        """`away_il`, 0 where task i is at location l and 1 or more elsewhere: x_i for GPU-0, 1 - x_i for GPU-1."""
        return differ(self.x[self.unit(i)], int(self.model.codes.code[place]))

    def off(self, i: int, device: int) -> LpAffineExpression:
        """`away_id`, 0 where task i is on device d and 1 or more elsewhere."""
        codes = self.model.codes
        place = int(codes.problem.location[device])
        return self.away(i, place) + differ(self.core[i], int(codes.rank[i, device]))

    def elsewhere(self, k: int, here: int, there: int) -> LpAffineExpression:
        """0 where transfer k goes from `here` to `there`, 1 or more where not: 1 - x_i + x_j for GPU-1 -> GPU-0."""
        t = self.model.transfers
        return self.away(int(t.tail[k]), here) + self.away(int(t.head[k]), there)

    def affine(self) -> list[tuple[int, Affine]]:
        """`forced` by numbers of columns."""
        number = {variable.name: c for c, variable in enumerate(self.columns)}
        return [(number[v.name], _affine(value, number)) for v, value in self.forced]


def differ(bits: list[LpVariable | None], code: int) -> LpAffineExpression:
    """The number of bits that differ from a code's; those that are no variables do not count."""
    return lpSum(1 - x if code >> b & 1 else x for b, x in enumerate(bits) if x is not None)


def symbols(model: PaperModel, horizon: float) -> Symbols:
    """The variables of a model, which has those of orders not yet; `horizon` is in units."""
    tasks, transfers = ordered(model)
    n, first = model.problem.tasks, model.assembly.columns
    delta = Affine.stack([model.assembly.binaries(len(pairs[0])) for pairs in (tasks, transfers)]).column[:, 0]
    one, two = (np.concatenate([tasks[side], n + transfers[side]]) for side in (0, 1))
    named = letters.columns(model) | letters.orders(model, (one, two, delta))
    columns = [_variable(named[c], *kind) for c, kind in enumerate(model.assembly.kinds())]
    split = first + len(tasks[0])
    always = model.transfers.always.tolist()
    return Symbols(
        model=model,
        M=horizon,
        C_max=columns[int(model.makespan.column[0, 0])],
        S=[columns[c] for c in model.start.column[:, 0].tolist()],
        C=[columns[c] for c in model.finish.column[:, 0].tolist()],
        z=[1 if sure else columns[c] for sure, c in zip(always, _first(model.crossing), strict=True)],
        x=[[columns[c] if c >= 0 else None for c in row] for row in model.codes.bit.tolist()],
        core=[[columns[c] if c >= 0 else None for c in row] for row in model.codes.core.tolist()],
        delta=(_orders(tasks, columns[first:split]), _orders(transfers, columns[split:])),
        links=shared_links(model.problem),
        columns=columns,
    )


def _first(part: Affine) -> list[int]:
    return part.column[:, 0].tolist() if part.column.shape[1] else [0] * len(part)


def _orders(pairs: Pairs, columns: list[LpVariable]) -> dict[tuple[int, int], LpVariable]:
    return dict(zip(zip(*(side.tolist() for side in pairs), strict=True), columns, strict=True))


def _variable(name: str, lower: float, upper: float, whole: bool) -> LpVariable:
    return LpVariable(name, lower, upper, LpBinary if whole else LpContinuous)


def _affine(value: Number, number: dict[str, int]) -> Affine:
    """[1] a PuLP expression by numbers of columns."""
    whole = value + LpAffineExpression()
    terms = [(number[v.name], float(c)) for v, c in whole.items()]
    column, coefficient = np.array(terms, dtype=np.float64).reshape(-1, 2).T
    return Affine(
        constant=np.array([float(whole.constant)]), column=column.astype(np.int64)[None], coefficient=coefficient[None]
    )
