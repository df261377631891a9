"""The kernels of a graph file's ops: a form by its name, and its sizes."""

from collections.abc import Sequence

import numpy as np

from pesto.core.errors import InputError
from pesto.core.files.json import shown
from pesto.core.files.toml import suggest
from pesto.core.graph import KERNEL_FORMS, KERNEL_SIZES
from solvers.arrays import Ints

_MOST = 2**40


def kernel_rows(said: Sequence[tuple[str, list[int]]]) -> Ints:
    """[n, 12] form and sizes of each op's kernel, from the name and sizes in a file; InputError with the place."""
    rows = np.zeros((len(said), 1 + max(KERNEL_SIZES)), dtype=np.int64)
    forms = {name: k for k, name in enumerate(KERNEL_FORMS)}
    for i, (name, sizes) in enumerate(said):
        if not name and not sizes:
            continue
        form = forms.get(name, -1)
        if form < 0:
            remedy = suggest(shown(name), KERNEL_FORMS[1:])
            raise InputError(f"$.ops[{i}].kernel: no form is named '{shown(name)}' - {remedy}")
        if len(sizes) != KERNEL_SIZES[form] or max(sizes, default=0) > _MOST:
            what = f"the {KERNEL_SIZES[form]} sizes of '{name}', each up to {_MOST}"
            raise InputError(f"$.ops[{i}].sizes: {len(sizes)} sizes - give {what if form else 'a kernel with them'}")
        rows[i, : 1 + len(sizes)] = [form, *sizes]
    return rows
