"""The rooms that are mutated, and the tests that judge the mutants of each."""

from dataclasses import dataclass
from pathlib import Path

from benchmarks.mutants.edits import Mutant, mutants

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Modules that are mutated, and the tests that judge them."""

    modules: tuple[str, ...]
    """Files and folders; after `::` one function or class of a file."""
    tests: tuple[str, ...]
    """Test files, the cheapest first: the first failure ends a run."""

    def mutants(self) -> list[Mutant]:
        """Return all mutants of the room, in the order of the source."""
        files = []
        for name in self.modules:
            folder = ROOT / name
            files += sorted(p.relative_to(ROOT).as_posix() for p in folder.glob("*.py")) if folder.is_dir() else [name]
        return [mutant for file in files for mutant in mutants(ROOT, file)]


ROOMS = {
    "coarsening": Room(modules=("pesto/planning/coarsen",), tests=("tests/pesto/planning/coarsen",)),
    "checker": Room(
        modules=("solvers/checker.py",), tests=("tests/solvers/test_check.py", "tests/solvers/test_check_neutral.py")
    ),
    "expansion": Room(
        modules=("pesto/planning/solving/candidates.py", "pesto/planning/solving/quick_candidates.py"),
        tests=(
            "tests/pesto/planning/solving/test_expansion.py",
            "tests/pesto/planning/solving/test_nearest.py",
            "tests/pesto/planning/solving/test_multilevel.py",
            "tests/pesto/planning/solving/test_turns.py",
        ),
    ),
    "paper": Room(
        modules=("solvers/milp/paper",),
        tests=(
            "tests/solvers/milp/test_paper.py",
            "tests/solvers/milp/test_paper_optimum.py",
            "tests/solvers/milp/test_printed.py",
        ),
    ),
    "printed": Room(modules=("solvers/milp/printed_form.py",), tests=("tests/solvers/milp/test_printed.py",)),
    "tight": Room(
        modules=("solvers/milp/tight",),
        tests=(
            "tests/solvers/milp/test_tight_times.py",
            "tests/solvers/milp/test_tight.py",
            "tests/solvers/milp/test_separate.py",
        ),
    ),
    "cpsat": Room(
        modules=("solvers/cpsat/model.py",),
        tests=("tests/solvers/cpsat/test_cpsat.py", "tests/solvers/cpsat/test_windows.py"),
    ),
    "search": Room(modules=("solvers/search",), tests=("tests/solvers/search",)),
    "bounds": Room(
        modules=("solvers/bounds",),
        tests=(
            "tests/solvers/bounds",
            "tests/pesto/core/plans/test_certificate.py",
            "tests/pesto/planning/solving/test_small_exact.py",
        ),
    ),
    "split": Room(
        modules=("pesto/split", "pesto/split/ops", "pesto/split/methods", "pesto/split/files"),
        tests=("tests/pesto/split",),
    ),
    "pipelining": Room(
        modules=("solvers/pipelining", "pesto/pipelining"),
        tests=("tests/solvers/pipelining", "tests/pesto/pipelining"),
    ),
    "enforcement": Room(
        modules=("pesto/tf/enforce", "pesto/tf/apply_placement"),
        tests=("tests/pesto/tf/apply_placement", "tests/pesto/tf/enforce"),
    ),
    "service": Room(
        modules=("pesto/service/serve", "pesto/service/serve/store", "pesto/service/serve/http"),
        tests=("tests/pesto/service",),
    ),
}
