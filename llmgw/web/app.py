"""What both apps have in common: every failure is a problem document, nothing is answered outside a declared route."""

import logging

from quart import Response
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException

from llmgw.api.paths import MAX_BODY_BYTES
from llmgw.api.types import Problem
from llmgw.core.errors import LlmgwError
from llmgw.web.bodies import problem_response, refusal

log = logging.getLogger("llmgw.web")

BODY_TIMEOUT_S = 60.0
"""A body that brings less than `bodies.STEP_BYTES` in this time, and not its end, is refused."""

_CODES = {404: "not_found", 405: "method_not_allowed", 408: "timeout", 413: "too_large"}
_SENTENCES = {
    404: "there is nothing at this path",
    405: "this path does not take that method",
    408: "the request's body did not come in time",
    413: f"the body is larger than {MAX_BODY_BYTES} bytes",
}


def new_app(name: str) -> QuartTrio:
    """A Quart app without static files, with our limits and error documents."""
    app = QuartTrio(name, static_folder=None, template_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES
    app.config["BODY_TIMEOUT"] = BODY_TIMEOUT_S
    # A reader that takes nothing is cut by `serve`, and one that takes its answer slowly is not.
    app.config["RESPONSE_TIMEOUT"] = None
    app.url_map.merge_slashes = False
    app.register_error_handler(LlmgwError, _refused)
    app.register_error_handler(HTTPException, _http_refused)
    app.register_error_handler(Exception, _failed)
    return app


async def _refused(error: LlmgwError) -> Response:
    return refusal(error)


async def _http_refused(error: HTTPException) -> Response:
    status = error.code or 500
    sentence = _SENTENCES.get(status, error.description or error.name)
    response = problem_response(Problem(code=_CODES.get(status, "invalid"), message=sentence, status=status))
    methods = getattr(error, "valid_methods", None)
    if methods:
        response.headers["Allow"] = ", ".join(sorted(methods))
    return response


async def _failed(error: Exception) -> Response:
    # The border of a request: whatever a handler let through is ours to log and nobody's to read.
    log.error("a request failed", exc_info=error)
    return problem_response(Problem(code="internal", message="the server failed; its log says why", status=500))
