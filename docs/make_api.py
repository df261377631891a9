"""Write docs/reference/api.md from the docstrings of what `pesto` and `solvers` export; a test compares the page.

    python docs/make_api.py

Reads the sources and imports nothing of the project.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "api.md"
WIDTH = 100
"""Columns of a signature that stays on one line."""
PARTS = (
    "pesto.core.cluster:Device", "pesto.core.cluster:Rates", "pesto.core.cluster:PRECISIONS",
    "pesto.core.cluster:Path", "pesto.core.plans.plan:Provenance", "pesto.choosing.comparison.contest:MethodEntry",
    "pesto.choosing.comparison.contest:StepShape",
    "pesto.core.plans.plan:CoarseSolve", "pesto.core.source:GraphOrigin", "pesto.core.source:Origin",
    "pesto.core.plans.execution_modes:ModePrediction",
    "pesto.choosing.whatif.rerun:LaunchedStep",
    "pesto.core.costs:Costs", "pesto.core.costs.measured:Noise", "pesto.planning.solving.candidates:Candidate",
    "pesto.core.simulator:Timeline",
    "pesto.inputs.from_networkx:Pick", "pesto.planning.solving.trust:Trust",
    "pesto.planning.solving.trust:StepSpread",
    "pesto.core.plans.notebook:LaneChart", "pesto.reporting.explaining.explanation:Explanation",
    "pesto.reporting.explaining.explanation:PathSums", "pesto.reporting.explaining.bottlenecks:Bottleneck",
    "pesto.reporting.explaining.bottlenecks:Improvement", "pesto.reporting.explaining.bottlenecks:TiedGroup",
    "pesto.reporting.explaining.explanation:OpFacts", "pesto.reporting.explaining.explanation:Move",
    "pesto.choosing.whatif.points:SweepRow", "pesto.choosing.whatif.points:PlacedStep",
    "pesto.choosing.whatif.grid:SweepGrid",
    "pesto.choosing.whatif.grid:ClusterPoint",
    "pesto.tf.enforce.context:AppliedPlans", "pesto.tf.enforce.partitions:Findings",
    "pesto.tf.enforce.context:RecordedSteps",
    "pesto.service.protocol:JobReply", "pesto.service.protocol:State",
    "pesto.service.client.calls:JobEvent",
    "solvers.bounds.evidence:Evidence", "solvers.checker:KINDS",
)  # fmt: skip
"""What is met inside exported values."""
_DECLARED = {
    "Unpack[SettingsOptions]": ("pesto.core.settings", "Settings"),
    "Unpack[CompareKeywords]": ("pesto.verbs.verb_options", "CompareOptions"),
    "Unpack[SweepKeywords]": ("pesto.verbs.verb_options", "SweepOptions"),
    "Unpack[SourceKeywords]": ("pesto.core.source", "Source"),
    "Unpack[StepKeywords]": ("pesto.core.source", "Source"),
}
"""Keyword arguments -> module and class that declares them."""
_ACCEPTED = {"tuple[str, ...]": "str | Iterable[str]", "Path | None": "str | Path | None"}
"""Type of an option -> type of the keyword argument (`pesto.core.option.Option.accepted_kind`)."""
INSIDE = "Inside: "
"""How the docstring of an attribute or method begins that is no part of the face."""

Statement = ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign

HEAD = """# From Python

`import pesto` and `import solvers` give what is on this page, typed, and load nothing before it is used. All else in
the two packages may change. A program to start from: `examples/plan_a_model.py`.

*Made from the docstrings by `python docs/make_api.py`.*
"""
SOURCES = """## pesto.tf.sources

Graphs from TensorFlow's own objects; importing it loads TensorFlow.
"""


class Defined(NamedTuple):
    """A definition under the name by which it is reached."""

    name: str
    node: Statement
    said: str
    """Its docstring, or the string below a constant."""


def main() -> None:
    """Write the page."""
    PAGE.write_text(made())


def made() -> str:
    """The whole page."""
    parts = [HEAD, *face("pesto"), "## Met inside these\n", *map(section, met("pesto"))]
    parts += [SOURCES, *map(section, exported("pesto.tf.sources"))]
    parts += [*face("solvers"), "## Met inside these, too\n", *map(section, met("solvers"))]
    return "\n".join(parts)


def met(package: str) -> list[Defined]:
    """What of a package is met inside the values that it exports."""
    names = [spec.split(":") for spec in PARTS if spec.startswith(f"{package}.")]
    return [defined(module, name, f"{module}.{name}") for module, name in names]


def face(package: str) -> list[str]:
    """Functions, values and errors of a package."""
    found = exported(package)
    errors = [each for each in found if each.name.endswith("Error")]
    others = sorted(set(found) - set(errors), key=lambda d: (not isinstance(d.node, ast.FunctionDef), d.name))
    rows = [f"- `{each.name}`{_exit_code(each.node)}: {' '.join(each.said.split())}" for each in errors]
    doc = ast.get_docstring(parsed(package)) or ""
    return [f"## {package}\n\n{doc.partition(': this is')[0]}.\n", *map(section, others), "### Errors\n", *rows, ""]


def exported(package: str) -> list[Defined]:
    """What a package's `__init__` imports under its own name, in order of names."""
    names = [
        alias.name
        for node in ast.walk(parsed(package))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    ]
    return [defined(package, name, f"{package}.{name}") for name in sorted(names)]


@cache
def parsed(module: str) -> ast.Module:
    """The syntax tree of a module."""
    path = ROOT / Path(*module.split("."))
    return ast.parse((init if (init := path / "__init__.py").exists() else path.with_suffix(".py")).read_text())


def defined(module: str, name: str, reached: str) -> Defined:
    """Where `name` is defined, through whichever modules it was imported; KeyError when nowhere."""
    tree = parsed(module)
    for k, node in enumerate(tree.body):
        if isinstance(node, Statement) and name_of(node) == name:
            doc = ast.get_docstring(node) if isinstance(node, ast.FunctionDef | ast.ClassDef) else _below(tree.body, k)
            return Defined(reached, node, doc or "")
    for found in ast.walk(tree):
        if isinstance(found, ast.ImportFrom) and found.module:
            for alias in found.names:
                if (alias.asname or alias.name) == name:
                    return defined(found.module, alias.name, reached)
    raise KeyError(f"{module} has no {name}")


def name_of(node: Statement) -> str:
    """What a statement defines."""
    if isinstance(node, ast.Assign):
        return ast.unparse(node.targets[0])
    return ast.unparse(node.target) if isinstance(node, ast.AnnAssign) else node.name


def section(found: Defined) -> str:
    """A name with its signature, its docstring and what it holds."""
    node, lines = found.node, [f"### {found.name}\n"]
    table = node.value if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) else None
    if not isinstance(node, ast.ClassDef) and table is None:
        text = signature(node) if isinstance(node, ast.FunctionDef) else code(node)
        lines.append(f"```python\n{text}\n```\n")
    if found.said:
        lines.append(f"{found.said}\n")
    pairs = attributes(node) if isinstance(node, ast.ClassDef) else meanings(table)
    rows = [f"| `{_cell(left)}` | {_cell(right)} |" for left, right in pairs if not right.startswith(INSIDE)]
    lines += ["| | |", "|---|---|", *rows, ""] if rows else []
    if isinstance(node, ast.ClassDef):
        lines += [*methods(node), ""] if methods(node) else []
    return "\n".join(lines)


def code(node: ast.AST) -> str:
    """Source text as the formatter has it: double quotes, and no spaces around a power."""
    return ast.unparse(node).replace("'", '"').replace(" ** ", "**")


def signature(node: ast.FunctionDef) -> str:
    """A function as it is called, on one line or with a line for each parameter."""
    result = f" -> {ast.unparse(node.returns)}".replace("'", "") if node.returns else ""
    words = [word for word in _parameters(node) if word not in ("self", "cls")]
    line = f"{node.name}({', '.join(words)}){result}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"{node.name}(", *(f"    {word}," for word in words), f"){result}"])


def _parameters(node: ast.FunctionDef) -> Iterator[str]:
    """Each parameter with its annotation and default, and the bare star before those by keyword only."""
    args = node.args
    first = len(args.args) - len(args.defaults)
    for k, arg in enumerate(args.args):
        yield _parameter(arg, args.defaults[k - first] if k >= first else None)
    if args.vararg:
        yield f"*{ast.unparse(args.vararg)}"
    elif args.kwonlyargs or _declaration(args.kwarg):
        yield "*"
    for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        yield _parameter(arg, default)
    if args.kwarg:
        yield from _declared_options(node, args.kwarg)


def _declaration(arg: ast.arg | None) -> tuple[str, str] | None:
    """Module and class that declare keyword arguments; None where these have names of any kind."""
    return None if arg is None or arg.annotation is None else _DECLARED.get(ast.unparse(arg.annotation))


def _declared_options(node: ast.FunctionDef, arg: ast.arg) -> Iterator[str]:
    """Yield the options that stand behind keyword arguments: the fields of the class that declares them.

    Without those that the function names itself, or leaves out: @with_options_of(..., but="name").
    """
    declaration = _declaration(arg)
    if declaration is None:
        yield f"**{ast.unparse(arg)}"
        return
    left_out = {each.arg for each in (*node.args.args, *node.args.kwonlyargs)}
    left_out |= {str(ast.literal_eval(k.value)) for d in node.decorator_list for k in getattr(d, "keywords", ())}
    declared = defined(*declaration, "").node
    for item in declared.body if isinstance(declared, ast.ClassDef) else []:
        if isinstance(item, ast.AnnAssign) and _described(item) and name_of(item) not in left_out:
            text, kind = _declared(item), code(plain(item.annotation))
            yield text.replace(f": {kind}", f": {_ACCEPTED.get(kind, kind)}", 1)


def _parameter(arg: ast.arg, default: ast.expr | None) -> str:
    text = code(arg)
    if default is None:
        return text
    return f"{text} = {code(default)}" if arg.annotation else f"{text}={code(default)}"


def attributes(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """(attribute as it is declared, what it means) of a class."""
    for k, item in enumerate(node.body):
        if isinstance(item, ast.Assign | ast.AnnAssign) and not name_of(item).startswith("_"):
            yield _declared(item), _below(node.body, k) or _described(item)


def meanings(table: ast.Dict | None) -> Iterator[tuple[str, str]]:
    """(key, what it means) of a constant that explains words."""
    for key, said in zip(table.keys, table.values, strict=True) if table else ():
        if key is not None:
            yield code(key), str(ast.literal_eval(said))


def methods(node: ast.ClassDef) -> list[str]:
    """Public methods and properties, each with its docstring on one line."""
    found = [item for item in node.body if isinstance(item, ast.FunctionDef) and not item.name.startswith("_")]
    said = {item: " ".join((ast.get_docstring(item) or "").split()) for item in found}
    return [f"- `{_called(item)}`: {text}" for item, text in said.items() if not text.startswith(INSIDE)]


def _below(body: list[ast.stmt], k: int) -> str:
    """The string that stands below a statement, on one line."""
    after = body[k + 1] if k + 1 < len(body) else None
    said = after.value if isinstance(after, ast.Expr) else None
    return " ".join(said.value.split()) if isinstance(said, ast.Constant) and isinstance(said.value, str) else ""


def _described(item: ast.Assign | ast.AnnAssign) -> str:
    """The text of a field that is declared as an option: Annotated[type, option(text, ...)]."""
    if not isinstance(item, ast.AnnAssign) or plain(item.annotation) is item.annotation:
        return ""
    calls = [n for n in ast.walk(item.annotation) if isinstance(n, ast.Call) and ast.unparse(n.func) == "option"]
    return str(ast.literal_eval(calls[0].args[0])) if calls else ""


def plain(annotation: ast.expr) -> ast.expr:
    """A type without what `Annotated` adds."""
    if not isinstance(annotation, ast.Subscript) or ast.unparse(annotation.value) != "Annotated":
        return annotation
    return annotation.slice.elts[0] if isinstance(annotation.slice, ast.Tuple) else annotation


def _declared(item: ast.Assign | ast.AnnAssign) -> str:
    """An attribute with its type and default; what a field computes is no default."""
    if not isinstance(item, ast.AnnAssign):
        return code(item)
    text = f"{code(item.target)}: {code(plain(item.annotation))}"
    return text if item.value is None or isinstance(item.value, ast.Call) else f"{text} = {code(item.value)}"


def _called(item: ast.FunctionDef) -> str:
    if any(ast.unparse(d) == "property" for d in item.decorator_list) and item.returns:
        return f"{item.name}: {code(item.returns)}"
    return " ".join(signature(item).split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _exit_code(error: Statement) -> str:
    """The exit code that an error class names, if it does."""
    codes = defined("pesto.core.errors", "Exit", "").node
    numbers = {f"Exit.{name_of(i)}": code(i.value) for i in getattr(codes, "body", []) if isinstance(i, ast.Assign)}
    own = [code(item.value) for item in getattr(error, "body", []) if isinstance(item, ast.Assign)]
    return "".join(f" (exit code {numbers[value]})" for value in own if value in numbers)


if __name__ == "__main__":
    main()
