"""What is wrong with a JSON body, in a sentence that says what would do: the reader's own words are for programmers."""

import re

from llmgw.router.limits import MAX_CHOICES, MAX_TOKENS_ASKED
from llmgw.router.routes import Forms, Route

_WANTED = re.compile(r"Expected `([a-z |]+)`, got `([a-z]+)`")
_WORDS = {
    "array": "an array",
    "bool": "true or false",
    "float": "a number with a fraction or an exponent",
    "int": "a whole number",
    "null": "null",
    "object": "an object",
    "str": "a string",
}
_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
"""How gzip and zstd begin."""
_WIDE = (b"\xff\xfe", b"\xfe\xff", b"{\x00", b"\x00{")
"""How JSON in UTF-16 begins."""
_URL_ENCODED = re.compile(rb"[A-Za-z_]+=")


def wrong_type(error: str, param: str | None) -> str:
    """The sentence for what `error`, as msgspec says it, finds wrong with the field `param`, or with the whole body."""
    found = _WANTED.match(error)
    if param is None:
        return "The body must be a JSON object" + (f", not {_words(found[2])}." if found else f": {error}.")
    if found is not None:
        wanted = " or ".join(_words(kind) for kind in found[1].split(" | ") if kind != "null")
        return f"{param} must be {wanted}, not {_words(found[2])}."
    if "out of range" in error:
        low, high = (1, MAX_CHOICES) if param == "n" else (0, MAX_TOKENS_ASKED)
        return f"{param} must be between {low} and {high}."
    return f"{param}: {error.partition(' - at ')[0]}."


def no_json(error: str, body: bytes, route: Route) -> str:
    """The sentence for a body that `error`, as msgspec says it, finds to be no JSON."""
    begin = body[:64].lstrip()
    if not begin and not body.strip():
        return f"The body is empty: {route.path} takes a JSON object."
    if body.startswith(b"\xef\xbb\xbf"):
        return "The body begins with a byte order mark: JSON is sent without one."
    if body.startswith(_WIDE):
        return "The body is UTF-16: JSON is sent as UTF-8."
    if body.startswith(_COMPRESSED):
        return "The body is compressed, and is not unpacked here: send it as it is, without a Content-Encoding."
    if begin.startswith(b"--") or _URL_ENCODED.match(begin):
        takes = "forms of Content-Type multipart/form-data, and JSON" if route.forms is Forms.EITHER else "JSON"
        return f"The body is a form, and not of a kind that is taken: {route.path} takes {takes}."
    what = error.removeprefix("JSON is malformed: ").replace("Input data was truncated", "it ends too early")
    return f"The body is not valid JSON: {what}."


def _words(kind: str) -> str:
    return _WORDS.get(kind, kind)
