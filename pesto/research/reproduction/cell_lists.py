"""Which cells each table and figure needs: the papers' models, clusters and settings."""

from collections.abc import Iterable

from pesto.research.reproduction.cached_cells import PAPER, WorkCell
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


def toy(name: str) -> list[WorkCell]:
    """The one cell of a toy."""
    works = {"ordered": toys.ordered, "mapped": toys.mapped, "peaked": toys.peaked}
    return [WorkCell("toys", (name,), works[name])]


def counts() -> list[WorkCell]:
    """Ops by duration."""
    return [WorkCell("durations", (model,), solves.counted) for model in COUNTED]


def solved(models: Iterable[str] = PAPER) -> list[WorkCell]:
    """A solve of each model on the paper's machine."""
    return [WorkCell("solves", (model, TWO), solves.solved) for model in models]


def rivals(models: Iterable[str] = PAPER) -> list[WorkCell]:
    """Cells of the methods that each model is compared with."""
    return [WorkCell("rivals", (model, TWO), solves.rivalled) for model in models]


def placings() -> list[WorkCell]:
    """Seconds of Baechi's methods."""
    return [WorkCell("placings", (model, TWO), solves.placed) for model in TIMED]


def sweeps() -> list[WorkCell]:
    """The points of Fig 8 but for the cluster as it is, which the solves have."""
    keys = [
        (model, TWO, axis, f"{speed:g}")
        for axis, models in SWEPT.items()
        for model in models
        for speed in SPEEDS[axis]
        if speed != 1
    ]
    return [WorkCell("sweeps", key, solves.swept) for key in keys]


def congestions() -> list[WorkCell]:
    """Fig 5's solves, over both kinds of link."""
    return [WorkCell("congestion", ("rnnlm/2x2048", cluster), solves.congested) for cluster in (PCIE, TWO)]


def spreads() -> list[WorkCell]:
    """Profiles on the machine at hand."""
    return [WorkCell("spread", (model,), solves.measured) for model in PROFILED]


def sizes() -> list[WorkCell]:
    """Nodes of ParDNN's models, with the batch of four GPUs."""
    return [WorkCell("sizes", (sized(model, 4),), pardnn_runs.sized) for model in (*SMALL, *LARGE)]


def singles() -> list[WorkCell]:
    """ParDNN's smaller models on one GPU."""
    return [WorkCell("singles", (sized(model, 1), at(1)), pardnn_runs.single) for model in SMALL]


def parts(models: Iterable[str] = (*SMALL, *LARGE)) -> list[WorkCell]:
    """Both steps of ParDNN on each number of GPUs beyond one."""
    keys = [(sized(model, gpus), at(gpus)) for model in models for gpus in batches(model) if gpus > 1]
    return [WorkCell("parts", key, pardnn_runs.parted) for key in keys]


def others() -> list[WorkCell]:
    """ParDNN and what it is held to, with the batch of four GPUs on each number of them."""
    keys = [(sized(model, 4), at(gpus)) for model in SMALL for gpus in (2, 4, 8, 16)]
    return [WorkCell("others", key, pardnn_runs.rivalled) for key in keys]


def shapes() -> list[WorkCell]:
    """Degree of parallelism and CCR with the batch of four GPUs, and of those whose CCR is stated."""
    return [
        WorkCell("shapes", (model, at(4)), pardnn_runs.shaped) for model in (*(sized(m, 4) for m in SMALL), *RATIOS)
    ]


def weighed() -> list[WorkCell]:
    """Bytes of the weights of Tofu's models."""
    return [
        WorkCell("tofu-weights", (f, v), tofu_runs.counted) for f, variants in TOFU_FAMILIES.items() for v in variants
    ]


def divisions(family: str, variants: Iterable[str]) -> list[WorkCell]:
    """Variants of a family of Tofu's by cuts, on one GPU, and layers on GPUs in turn where that is compared."""
    keys = [(family, variant, BOX) for variant in variants]
    result = [WorkCell("tofu-splits", key, tofu_runs.divided) for key in keys]
    result += [WorkCell("tofu-small", key, tofu_runs.small) for key in keys]
    return result + [WorkCell("tofu-placed", key, tofu_runs.placed) for key in keys if family == "tofu-rnn"]


def algorithms() -> list[WorkCell]:
    """Fig 11's model by each way to choose cuts."""
    return [WorkCell("tofu-algorithms", ("tofu-rnn", "4x8192", BOX, name), tofu_runs.compared) for name in ALGORITHMS]
