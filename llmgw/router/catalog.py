"""`GET /v1/models`: what the caller's key may use, and nothing that tells of the rest."""

from urllib.parse import unquote_to_bytes

import msgspec

from llmgw.core.routing import KeyRecord, RoutedModel
from llmgw.router.errors import model_not_found, model_unrouted, no_model_named
from llmgw.router.ports import Routes


class ModelObject(msgspec.Struct):
    """OpenAI's model object with what a client should know of the limits."""

    id: str
    object: str
    created: int
    owned_by: str
    context_length: int | None
    max_output_tokens: int | None
    aliases: tuple[str, ...]


class ModelList(msgspec.Struct):
    """OpenAI's list."""

    object: str
    data: list[ModelObject]


def may_use(key: KeyRecord, model: RoutedModel) -> bool:
    """Whether the key may use the model, under whichever of its names it was allowed."""
    return key.models is None or model.name in key.models or any(alias in key.models for alias in model.aliases)


def allowed_model(routes: Routes, key: KeyRecord, name: str) -> RoutedModel:
    """The model of that name or alias.

    Raises Refusal: 404, the same one for no model and a denied one, and 400 for one that no request is relayed to.
    """
    model = routes.resolve(name)
    if model is None or not may_use(key, model):
        raise model_not_found(name)
    if model.unrouted:
        raise model_unrouted(model.unrouted)
    return model


def list_models(routes: Routes, key: KeyRecord) -> bytes:
    """The body of `GET /v1/models`."""
    data = [_object(model) for model in routes.models() if may_use(key, model) and not model.unrouted]
    return msgspec.json.encode(ModelList("list", data))


def show_model(routes: Routes, key: KeyRecord, raw_name: bytes) -> bytes:
    """The body of `GET /v1/models/{name}`; `raw_name` as it stood in the path. Raises Refusal (400, 404)."""
    if not raw_name:
        raise no_model_named()
    name = unquote_to_bytes(raw_name).decode("utf-8", "replace")
    return msgspec.json.encode(_object(allowed_model(routes, key, name)))


def _object(model: RoutedModel) -> ModelObject:
    output = model.max_output or model.context_length
    limits = model.context_length or None, output or None
    return ModelObject(model.name, "model", model.created, "llmgw", *limits, model.aliases)
