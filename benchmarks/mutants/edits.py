"""Small wrong edits of a module, one at a time: what a test of it should notice."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_COMPARISONS = {
    ast.Lt: ("<", ("<=", ">=")), ast.LtE: ("<=", ("<", ">")), ast.Gt: (">", (">=", "<=")), ast.GtE: (">=", (">", "<")),
    ast.Eq: ("==", ("!=",)), ast.NotEq: ("!=", ("==",)), ast.In: ("in", ("not in",)), ast.NotIn: ("not in", ("in",)),
    ast.Is: ("is", ("is not",)), ast.IsNot: ("is not", ("is",)),
}  # fmt: skip
_ARITHMETIC = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "//"), ast.Div: ("/", "*"), ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"), ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"), ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}  # fmt: skip
_TWINS = (
    ("min", "max"), ("minimum", "maximum"), ("any", "all"), ("argmin", "argmax"), ("floor", "ceil"), ("zeros", "ones"),
)  # fmt: skip
_OTHER = {**dict(_TWINS), **{b: a for a, b in _TWINS}}
_SILENT = ("strict", "dtype", "kind", "text", "name")
"""Arguments by keyword that guard, lay out or tell, and decide nothing."""
Edit = tuple[int, int, str]
"""Bytes from and to, and what takes their place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A module with one small wrong edit."""

    path: str
    function: str
    """Qualified name of what the edit is in."""
    line: int
    before: str
    """The statement's or expression's line as it is."""
    after: str
    """The line as it becomes."""
    source: bytes
    """The whole module, edited."""

    @property
    def key(self) -> str:
        """Identifier that stays the same when lines above are added or removed."""
        return f"{self.path}::{self.function}: {self.before}  =>  {self.after}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """Bytes of a module, and the offsets at which its lines begin."""

    text: bytes
    begins: tuple[int, ...]

    @classmethod
    def read(cls, path: Path) -> "Module":
        """Read the module of a file."""
        text = path.read_bytes()
        begins = [0]
        for line in text.splitlines(keepends=True):
            begins.append(begins[-1] + len(line))
        return cls(text=text, begins=tuple(begins))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Return the byte offsets at which a node begins and ends."""
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno or 0, node.end_col_offset or 0)

    def at(self, line: int, column: int) -> int:
        """Return the byte offset of a line (from 1) and a column (from 0)."""
        return self.begins[line - 1] + column

    def of(self, node: ast.expr) -> str:
        """Return the source text of a node."""
        begin, end = self.span(node)
        return self.text[begin:end].decode()

    def between(self, left: ast.expr, right: ast.expr, old: str, new: str) -> Iterator[Edit]:
        """Replace the operator between two operands by another one."""
        begin, end = self.span(left)[1], self.span(right)[0]
        at = self.text[begin:end].decode().find(old)
        if at >= 0:
            yield begin + at, begin + at + len(old), new


def mutants(root: Path, where: str) -> list[Mutant]:
    """Return every mutant of `path` or, after `::`, of one of its top functions or classes, in source order."""
    path, _, only = where.partition("::")
    module = Module.read(root / path)
    tree = ast.parse(module.text)
    every: list[Mutant] = []
    for function, node in _walk(tree, ""):
        if not function or (only and function.split(".")[0] != only):
            continue  # numbers of the module itself are chosen: others serve as well
        every += [_make_mutant(module, path, function, edit) for edit in _edits(module, node)]
    return [m for m in every if _compiles(m.source)]


def _make_mutant(module: Module, path: str, function: str, edit: Edit) -> Mutant:
    begin, end, new = edit
    source = module.text[:begin] + new.encode() + module.text[end:]
    line = module.text.count(b"\n", 0, begin)
    first, last = module.begins[line], module.text.find(b"\n", end)
    before = " ".join(module.text[first:last].decode().split())
    after = " ".join((module.text[first:begin] + new.encode() + module.text[end:last]).decode().split())
    return Mutant(path=path, function=function, line=line + 1, before=before, after=after, source=source)


def _compiles(source: bytes) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def _walk(node: ast.AST, function: str) -> Iterator[tuple[str, ast.AST]]:
    """Yield every node whose edit tests can notice, and its qualified scope: no types, decorators or messages."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params") or isinstance(node, ast.JoinedStr):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or (isinstance(child, ast.keyword) and child.arg in _SILENT):
                continue
            inside = function
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                inside = f"{function}.{child.name}".lstrip(".")
            yield inside, child
            yield from _walk(child, inside)


def _edits(module: Module, node: ast.AST) -> Iterator[Edit]:
    for kind, rule in _RULES.items():
        if isinstance(node, kind):
            yield from rule(module, node)


def _edit_comparison(module: Module, node: ast.Compare) -> Iterator[Edit]:
    for left, op, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
        old, others = _COMPARISONS[type(op)]
        for new in others:
            yield from module.between(left, right, old, new)


def _edit_arithmetic(module: Module, node: ast.BinOp) -> Iterator[Edit]:
    if type(node.op) in _ARITHMETIC:
        yield from module.between(node.left, node.right, *_ARITHMETIC[type(node.op)])


def _edit_boolean(module: Module, node: ast.BoolOp) -> Iterator[Edit]:
    old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
    for left, right in zip(node.values, node.values[1:], strict=False):
        yield from module.between(left, right, old, new)


def _edit_unary(module: Module, node: ast.UnaryOp) -> Iterator[Edit]:
    yield *module.span(node), f"({module.of(node.operand)})"


def _edit_constant(module: Module, node: ast.Constant) -> Iterator[Edit]:
    if isinstance(node.value, bool):
        yield *module.span(node), str(not node.value)
    elif isinstance(node.value, int | float):
        yield *module.span(node), str(node.value + 1)
        if node.value > 0:
            yield *module.span(node), str(node.value - 1)


def _edit_call(module: Module, node: ast.Call) -> Iterator[Edit]:
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    if name in _OTHER:
        end = module.span(node.func)[1]
        yield end - len(name), end, _OTHER[name]


def _edit_branch(module: Module, node: ast.If | ast.IfExp | ast.While) -> Iterator[Edit]:
    if not isinstance(node.test, ast.Compare | ast.UnaryOp | ast.Constant):  # these have edits of their own
        yield *module.span(node.test), f"(not ({module.of(node.test)}))"


def _edit_slice(module: Module, node: ast.Slice) -> Iterator[Edit]:
    for bound in (node.lower, node.upper):
        if bound is not None:
            yield *module.span(bound), ""


def _edit_elements(module: Module, node: ast.List | ast.Tuple) -> Iterator[Edit]:
    """Leave out each element in turn, where they are several of a kind."""
    alike = isinstance(node, ast.List) or any(isinstance(e, ast.Starred) for e in node.elts)
    if alike and isinstance(node.ctx, ast.Load) and len(node.elts) > 1:
        for one, two in zip(node.elts, node.elts[1:], strict=False):
            yield module.span(one)[0], module.span(two)[0], ""
        yield *module.span(node.elts[-1]), ""


def _edit_loop(module: Module, node: ast.For | ast.comprehension) -> Iterator[Edit]:
    if isinstance(node.iter, ast.Tuple) and not any(isinstance(e, ast.Starred) for e in node.iter.elts):
        for one, two in zip(node.iter.elts, [*node.iter.elts[1:], None], strict=True):
            yield (module.span(one)[0], module.span(two)[0], "") if two else (*module.span(one), "")


def _edit_statement(module: Module, node: ast.stmt) -> Iterator[Edit]:
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):  # a docstring
        yield *module.span(node), "pass"


def _swap_jump(module: Module, node: ast.Continue | ast.Break) -> Iterator[Edit]:
    yield *module.span(node), "break" if isinstance(node, ast.Continue) else "continue"


def _edit_return(module: Module, node: ast.Return) -> Iterator[Edit]:
    if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
        yield *module.span(node), "return None"


_RULES: dict[object, Callable[..., Iterator[Edit]]] = {
    ast.Compare: _edit_comparison, ast.BinOp: _edit_arithmetic, ast.BoolOp: _edit_boolean,
    ast.UnaryOp: _edit_unary, ast.Constant: _edit_constant,
    ast.Call: _edit_call, ast.If | ast.IfExp | ast.While: _edit_branch, ast.Slice: _edit_slice,
    ast.List | ast.Tuple: _edit_elements,
    ast.For | ast.comprehension: _edit_loop, ast.Expr | ast.AugAssign | ast.Raise: _edit_statement,
    ast.Continue | ast.Break: _swap_jump, ast.Return: _edit_return,
}  # fmt: skip
