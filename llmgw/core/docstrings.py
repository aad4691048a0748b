"""The sentence under a field is its documentation; references and API descriptions are generated from it."""

import ast
import inspect
import textwrap


def field_docs(type_: type) -> dict[str, str]:
    """Docstring of each annotated field of a class, base classes' first; needs the class's source."""
    docs: dict[str, str] = {}
    for base in reversed(type_.__mro__):
        if base.__module__.partition(".")[0] in ("llmgw", "agent", "console"):
            docs.update(_own_docs(base))
    return docs


def _own_docs(type_: type) -> dict[str, str]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(type_)))
    (definition,) = tree.body
    assert isinstance(definition, ast.ClassDef)
    docs: dict[str, str] = {}
    for field, following in zip(definition.body, definition.body[1:], strict=False):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            docs[field.target.id] = " ".join(str(following.value.value).split())
    return docs
