"""The client API's page names every error code and every header that is in the router's source, and no other."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import llmgw.router

ROUTER = Path(llmgw.router.__file__).parent
PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
READS_ENGINES = {"multipart.py", "relay.py", "responses.py", "upstream.py"}
"""Compare names of headers that are no client's: an engine's, or those of a form's parts."""
WRITES_OTHERS = {
    "attempts.py",
    "forms.py",
    "otlp.py",
    "passthrough.py",
    "pool.py",
    "provider_keys.py",
    "span_export.py",
    "traces.py",
}
"""Write heads to engines, to collectors or to the public app, which no client reads."""
OF_ONE_CODE = {"bad_request"}
"""Make errors of the code that they are called after."""
EVENTS = {"data", "event"}
"""Fields of server-sent events, which are compared and written as headers are."""


class Source:
    """One file of the router."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.tree = ast.parse(path.read_text())
        self.nodes = list(ast.walk(self.tree))
        self.constants: dict[str, ast.expr] = {}
        for node in self.tree.body:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    for name, value in _assigned(target, node.value):
                        self.constants[name] = value


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, its in zip(target.elts, value.elts, strict=True):
            yield from _assigned(one, its)


SOURCES = [Source(path) for path in sorted(ROUTER.glob("*.py"))]
EVERYWHERE = {name: value for source in SOURCES for name, value in source.constants.items()}


def literals(node: ast.expr | None, kind: type, constants: Mapping[str, ast.expr]) -> Iterator[object]:
    """Literals of a kind that an expression may be, or may be among."""
    match node:
        case ast.Name(id=name) if name in constants or name in EVERYWHERE:
            yield from literals(constants.get(name) or EVERYWHERE[name], kind, constants)
        case ast.Constant(value=value) if type(value) is kind:
            yield value
        case ast.IfExp(body=one, orelse=other) | ast.BinOp(left=one, right=other):
            yield from literals(one, kind, constants)
            yield from literals(other, kind, constants)
        case ast.Tuple(elts=elements) | ast.Set(elts=elements) | ast.Call(func=ast.Name(id="frozenset"), args=elements):
            for element in elements:
                yield from literals(element, kind, constants)
        case _:
            pass


class Signature:
    """What a function of the router calls its parameters."""

    def __init__(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        arguments = function.args
        names = [argument.arg for argument in arguments.args]
        self.positions = [name for name in names if name != "self"]
        self.names = {*self.positions, *(argument.arg for argument in arguments.kwonlyargs)}
        self.defaults = dict(zip(reversed(names), reversed(arguments.defaults), strict=False))

    def given(self, call: ast.Call, name: str) -> ast.expr | None:
        """What a call gives for a parameter, if anything."""
        for keyword in call.keywords:
            if keyword.arg == name:
                return keyword.value
        at = self.positions.index(name) if name in self.positions else len(call.args)
        return call.args[at] if at < len(call.args) else self.defaults.get(name)


def _signatures() -> dict[str, Signature]:
    """Functions, and classes by what makes one, that take an error's code or have one of their own."""
    found: dict[str, Signature] = {}
    for source in SOURCES:
        for node in source.nodes:
            if isinstance(node, ast.ClassDef):
                made = [inner for inner in node.body if isinstance(inner, ast.FunctionDef) and inner.name == "__init__"]
                found.update((node.name, Signature(inner)) for inner in made)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found.setdefault(node.name, Signature(node))
    return {name: its for name, its in found.items() if "code" in its.names or name in OF_ONE_CODE}


def codes() -> dict[str, set[object]]:
    """Error codes in the source, with the statuses that stand beside them there."""
    known = _signatures()
    found: dict[str, set[object]] = defaultdict(set)
    for source in SOURCES:
        for node in source.nodes:
            name = _called(node)
            if isinstance(node, ast.Call) and name in known:
                given = ast.Constant(name) if name in OF_ONE_CODE else known[name].given(node, "code")
                for code in literals(given, str, source.constants):
                    found[str(code)].update(literals(known[name].given(node, "status"), int, source.constants))
    return found


def _called(node: ast.AST) -> str:
    match node:
        case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
            return name
        case _:
            return ""


def headers_read() -> set[str]:
    """Names that the source compares a client's headers with, or asks its head for."""
    found: set[object] = set()
    for source in SOURCES:
        for node in source.nodes if source.name not in READS_ENGINES else ():
            match node:
                case ast.Compare(left=ast.Name(id="name"), ops=[ast.Eq() | ast.In()], comparators=[names]):
                    found.update(literals(names, bytes, source.constants))
                case ast.Compare(left=names, ops=[ast.In() | ast.NotIn()], comparators=[head]) if _is_once(head):
                    found.update(literals(names, bytes, source.constants))
                case ast.Call(func=ast.Attribute(attr="get", value=head), args=[names, *_]) if _is_once(head):
                    found.update(literals(names, bytes, source.constants))
                case (
                    ast.For(target=ast.Name(id="name"), iter=names)
                    | ast.comprehension(target=ast.Name(id="name"), iter=names)
                ):
                    found.update(literals(names, bytes, source.constants))
                case _:
                    pass
    return {name.decode() for name in found if isinstance(name, bytes)} - EVENTS


def _is_once(node: ast.expr) -> bool:
    return ast.unparse(node).rpartition(".")[2] == "once"


def headers_written() -> set[str]:
    """Names of the headers in what the source writes to clients; `*` stands for what is put in."""
    found: set[str] = set()
    for source in SOURCES:
        for node in source.nodes if source.name not in WRITES_OTHERS else ():
            if isinstance(node, ast.Tuple) and len(node.elts) == 2 and not list(literals(node, bytes, {})):
                found.update(re.findall(r"^x-[a-z*-]*[a-z*]$", _text(node.elts[0])))
            found.update(re.findall(r"(?:^|\r\n)([a-z][a-z*-]+): ", _text(node)))
    return found - EVENTS


def _text(node: ast.AST) -> str:
    """A literal with `*` for what is put in; empty for anything else."""
    match node:
        case ast.JoinedStr(values=values):
            return "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in values)
        case ast.Constant(value=bytes(value)):
            return value.decode("latin-1")
        case ast.Constant(value=str(value)):
            return value
        case _:
            return ""


def table(title: str, head: str) -> list[list[str]]:
    """Cells of the table under a heading whose first column has this head."""
    lines = PAGE.partition(f"# {title}\n")[2].partition(f"| {head} |")[2].splitlines()[2:]
    ends = next((at for at, line in enumerate(lines) if not line.startswith("|")), len(lines))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:ends]]


def named_headers(head: str) -> set[str]:
    """Headers in the first column of a table under `Headers`."""
    cells = " ".join(row[0] for row in table("Headers", head))
    return {name.lower() for name in re.findall(r"`([A-Za-z-]+)`", cells) if name != "tokens"}


def test_every_code_has_a_row_with_its_statuses_and_no_row_is_of_none() -> None:
    rows = table("Codes", "`code`")
    documented = {code: set(map(int, row[1].split(","))) for row in rows for code in re.findall(r"`(\w+)`", row[0])}
    documented.pop("null")
    real = codes()
    assert set(documented) == set(real)
    assert {code: statuses for code, statuses in real.items() if not statuses <= documented[code]} == {}
    assert all(len(row) == 5 and row[2] and row[4] for row in rows)


def test_every_header_that_is_read_has_a_row_and_no_row_is_of_none() -> None:
    assert named_headers("a client's header") == headers_read()


def test_every_header_that_is_added_has_a_row_and_no_row_is_of_none() -> None:
    documented, real = named_headers("an answer's header"), headers_written()
    assert {name for name in documented if not any(fnmatchcase(name, pattern) for pattern in real)} == set()
    assert {pattern for pattern in real if not any(fnmatchcase(name, pattern) for name in documented)} == set()
