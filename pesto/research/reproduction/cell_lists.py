"""Which cells each table and figure needs: the papers' models, clusters and settings."""

from collections.abc import Callable, Iterable

from pesto.research.reproduction.cached_cells import PAPER, CellSettings, Found, Key, WorkCell
from pesto.research.reproduction.work import pardnn_runs, solves, tofu_runs, toys
from pesto.tf.models.counts import PUBLISHED

TWO, PCIE, SIXTEEN = "v100x2-nvlink", "v100x2-pcie", "v100x16"
COUNTED = ("transformer/6x16x2048", "rnnlm/2x2048", "nasnet/4x212", "nmt/2x1024")
"""Table 1's models."""
TIMED = ("nmt/2x1024", "nmt/4x1024", "nasnet/6x148")
"""Those of Tables 2 and 3."""
SPEEDS = {"compute": (0.5, 1, 2, 4), "links": (0.1, 0.25, 0.5, 1, 2)}
"""Factors of Fig 8 on the cluster's speed."""
SWEPT = {"compute": ("nmt/2x1024", "rnnlm/2x2048", "transformer/6x16x2048", "nasnet/6x148"), "links": ("nmt/2x1024",)}
PROFILED = ("rnnlm/tiny@1024", "nmt/tiny@512", "transformer/tiny@256", "nasnet/tiny@32")
"""Steps profiled for Fig 4a, with batches whose ops keep a processor busy for long enough."""
SMALL = ("word-rnn/8x2048", "char-crn/8x2048", "wrn/610x14", "pardnn-transformer/24x5120", "e3d/320")
LARGE = ("word-rnn/8x4096", "char-crn/32x2048", "wrn/304x28", "pardnn-transformer/48x8192", "e3d/512")
"""ParDNN's models, of its first use case and of its second."""
RATIOS = ("word-rnn/8x2048@256", "word-rnn/8x2048@2048")
"""Models whose CCR the thesis states."""
BOX = "k80x8"
"""Tofu's machine."""
CLUSTERS = (BOX, tofu_runs.SWITCHED)
RNN = tuple(f"{layers}x{hidden}" for layers in (6, 8, 10) for hidden in (4096, 6144, 8192))
WRN_OF = {layers: tuple(f"{layers}x{widening}" for widening in (4, 6, 8, 10)) for layers in (50, 101, 152)}
WRN = tuple(variant for variants in WRN_OF.values() for variant in variants)
TOFU_FAMILIES = {"tofu-rnn": RNN, "tofu-wrn": WRN}
"""Models of Tofu's Table 1, Figs 9 and 10."""
ALGORITHMS = {
    "rows-random": "AllRow-Rand", "rows": "AllRow-Greedy", "spartan": "Spartan", "chop": "EqualChop", "tofu": "Tofu",
    "exact": "",
}  # fmt: skip
"""Methods of Fig 11, with the paper's names."""
ALONE = ("spread", "congestion")
"""Tables of which nothing else of this run is beside a cell: they measure the machine, or a clock could end them."""


def batches(model: str) -> dict[int, int]:
    """ParDNN's batch by number of GPUs (Table 6.1)."""
    family, _, variant = model.partition("/")
    return PUBLISHED[family, variant]


def sized(model: str, gpus: int) -> str:
    """The model with the batch that it has on so many GPUs."""
    return f"{model}@{batches(model)[gpus]}"


def at(gpus: int) -> str:
    """So many GPUs of ParDNN's machine."""
    return f"{SIXTEEN}:{gpus}"


def _cells(table: str, keys: Iterable[Key], work: Callable[[Key, CellSettings], Found]) -> list[WorkCell]:
    return [WorkCell(table, key, work) for key in keys]


ORDERED, MAPPED, PEAKED = (
    WorkCell("toys", (work.__name__,), work) for work in (toys.ordered, toys.mapped, toys.peaked)
)
"""The toys of Pesto's Fig 2, and of ParDNN's Figs 4.2 and 4.3."""
COUNTS = _cells("durations", zip(COUNTED), solves.counted)
"""Ops by duration."""
PLACINGS = _cells("placings", ((model, TWO) for model in TIMED), solves.placed)
"""Seconds of Baechi's methods."""
SWEEPS = _cells(
    "sweeps",
    (
        (model, TWO, axis, f"{speed:g}")
        for axis, models in SWEPT.items()
        for model in models
        for speed in SPEEDS[axis]
        if speed != 1
    ),
    solves.swept,
)
"""The points of Fig 8 but for the cluster as it is, which the solves have."""
CONGESTIONS = _cells("congestion", (("rnnlm/2x2048", cluster) for cluster in (PCIE, TWO)), solves.congested)
"""Fig 5's solves, over both kinds of link."""
SPREADS = _cells("spread", zip(PROFILED), solves.measured)
"""Profiles on the machine at hand."""
SIZES = _cells("sizes", ((sized(model, 4),) for model in (*SMALL, *LARGE)), pardnn_runs.sized)
"""Nodes of ParDNN's models, with the batch of four GPUs."""
SINGLES = _cells("singles", ((sized(model, 1), at(1)) for model in SMALL), pardnn_runs.single)
"""ParDNN's smaller models on one GPU."""
OTHERS = _cells(
    "others", ((sized(model, 4), at(gpus)) for model in SMALL for gpus in (2, 4, 8, 16)), pardnn_runs.rivalled
)
"""ParDNN and what it is compared with, with the batch of four GPUs on each number of them."""
SHAPES = _cells("shapes", ((model, at(4)) for model in (*(sized(m, 4) for m in SMALL), *RATIOS)), pardnn_runs.shaped)
"""Degree of parallelism and CCR with the batch of four GPUs, and of those whose CCR is stated."""
WEIGHTS = _cells("tofu-weights", ((f, v) for f, variants in TOFU_FAMILIES.items() for v in variants), tofu_runs.counted)
"""Bytes of the weights of Tofu's models."""
METHODS = _cells("tofu-algorithms", (("tofu-rnn", "4x8192", BOX, name) for name in ALGORITHMS), tofu_runs.compared)
"""Fig 11's model by each way to choose cuts."""


def solved(models: Iterable[str] = PAPER) -> list[WorkCell]:
    """A solve of each model on the paper's machine."""
    return _cells("solves", ((model, TWO) for model in models), solves.solved)


def rivals(models: Iterable[str] = PAPER) -> list[WorkCell]:
    """Cells of the methods that each model is compared with."""
    return _cells("rivals", ((model, TWO) for model in models), solves.rivalled)


def parts(models: Iterable[str] = (*SMALL, *LARGE)) -> list[WorkCell]:
    """Both steps of ParDNN on each number of GPUs beyond one."""
    keys = ((sized(model, gpus), at(gpus)) for model in models for gpus in batches(model) if gpus > 1)
    return _cells("parts", keys, pardnn_runs.parted)


def divisions(family: str, variants: Iterable[str]) -> list[WorkCell]:
    """Variants of a family of Tofu's by cuts, on one GPU, and layers on GPUs in turn where that is compared."""
    keys = [(family, variant, BOX) for variant in variants]
    result = [*_cells("tofu-splits", keys, tofu_runs.divided), *_cells("tofu-small", keys, tofu_runs.small)]
    return result + (_cells("tofu-placed", keys, tofu_runs.placed) if family == "tofu-rnn" else [])
