"""Names of the tight program's columns that people can read."""

from solvers.milp.tight.orders import PairOrder
from solvers.milp.tight.times import ProgramDraft
from solvers.milp.tight.transfers import PayloadCrossing


def names_of(draft: ProgramDraft, crossings: list[PayloadCrossing], orders: list[PairOrder]) -> list[str]:
    """[c] by the letters of `solvers.milp.tight.program`, with what each stands for.

    C_max, S_op3, x_op3_loc1 (of the first of the tasks that share a location), y_op3_dev1, T_data4_to1, w_data4_to1_0,
    op3_before_op5. Locations and devices that are alike are numbered in the order of their first use.
    """
    found = {draft.makespan: "C_max"}
    found |= {column: f"S_op{task}" for task, column in enumerate(draft.start)}
    for task, (at, on) in enumerate(zip(draft.places.at, draft.places.on, strict=True)):
        for place, x in at.items():
            found.setdefault(x, f"x_op{task}_loc{place}")
        for device, y in on.items():
            found.setdefault(y, f"y_op{task}_dev{device}")
    label = [f"op{task}" for task in range(len(draft.start))]
    for c in crossings:
        label.append(f"data{c.payload}_to{c.to}")
        found[c.start] = f"T_{label[-1]}"
        found |= {variant.column: f"w_{label[-1]}_{k}" for k, variant in enumerate(c.variants)}
    for order in orders:
        one, two = label[order.pair.one], label[order.pair.two]
        for column, name in ((order.forth, f"{one}_before_{two}"), (order.back, f"{two}_before_{one}")):
            if column is not None:
                found[column] = name
    return [found[column] for column in range(len(found))]
