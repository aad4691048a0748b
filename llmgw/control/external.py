"""Outside endpoints as operators meet them: their files looked at before an entry is taken, their sentences."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from llmgw.core.catalog import Model
from llmgw.core.config import ServerConfig
from llmgw.core.errors import Conflict, InvalidInput
from llmgw.core.layout import ServerLayout
from llmgw.core.units import plural
from llmgw.router.provider_keys import NoKeys, read_keys
from llmgw.router.tls import TlsFailure, provider_context


def private_files(config: ServerConfig, layout: ServerLayout) -> tuple[Path, ...]:
    """What no provider is ever sent: everything in the data directory, and secrets the configuration names."""
    tls = config.client.tls
    named = (
        config.database_file,
        config.hf_token_file,
        *(token.token_file for token in config.admin_tokens),
        tls.key if tls is not None else "",
    )
    return (layout.data, *(Path(name) for name in named if name))


def check_files(model: Model, private: Sequence[Path]) -> None:
    """Raise InvalidInput for a file of the model's endpoints that routers could not use, naming its line at most."""
    for i, endpoint in enumerate(model.endpoints):
        if endpoint.api_keys_file:
            try:
                read_keys(endpoint.api_keys_file, private)
            except NoKeys as error:
                raise InvalidInput(f"{endpoint.api_keys_file}: {error}", field=f"external[{i}].api_keys_file") from None
        if endpoint.ca_file:
            try:
                provider_context(endpoint.ca_file)
            except TlsFailure as error:
                raise InvalidInput(str(error), field=f"external[{i}].ca_file") from None


def file_problems(models: Iterable[Model], private: Sequence[Path]) -> tuple[str, ...]:
    """A sentence for every model whose providers' keys cannot be read now."""
    found: list[str] = []
    for model in models:
        for path in dict.fromkeys(e.api_keys_file for e in model.endpoints if e.api_keys_file and not model.stopped):
            try:
                read_keys(path, private)
            except NoKeys as error:
                found.append(f"model {model.name}: keys file {path}: {error}")
    return tuple(found)


def where(model: Model) -> str:
    """`https://api.example.com/v1`, or the first of several and how many more; empty for a model that runs here."""
    urls = [endpoint.base_url for endpoint in model.endpoints]
    return "" if not urls else urls[0] if len(urls) == 1 else f"{urls[0]} and {len(urls) - 1} more"


def describe(model: Model) -> str:
    """`gpt-outside: served by https://api.example.com/v1, outside the cluster`."""
    return f"{model.name}: served by {where(model)}, outside the cluster"


def routed(model: Model) -> str:
    """`requests go to 2 endpoints outside the cluster`."""
    return f"requests go to {plural(len(model.endpoints), 'endpoint')} outside the cluster"


def refuse_external(model: Model, what: str) -> None:
    """Raise Conflict for something done with replicas, which an outside model has none of."""
    if model.external:
        raise Conflict(
            f"{model.name} is served outside the cluster by {where(model)}: there is no replica to {what}; "
            f"`llmgw ctl model stop {model.name}` takes it out of routing"
        )
