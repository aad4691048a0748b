"""Requests that were served, and why one of them waited or failed."""

from llmgw.api.actions.words import OP, Action, Argument, Kind, Target, option
from llmgw.api.paths import PREFIX
from llmgw.api.request_types import RequestPage, RequestTold

MODEL = option("--model", "only requests for this model", metavar="NAME")
KEY = option("--key", "only requests with this key, by id or name", metavar="KEY")
TEAM = option("--team", "only requests of this team", metavar="TEAM")
STATUS = option("--status", "only `ok` ones, `failed` ones, `4xx`, `5xx` or one status such as 429", metavar="STATUS")
WAITED = option("--waited", "only requests that waited this many milliseconds or longer", Kind.INTEGER, metavar="MS")
SINCE = option("--since", "from then on: 30m, 12h, 7d, or an ISO time", metavar="WHEN")
FAILED = option("--failed", "only requests that failed or were refused", Kind.FLAG)
TAIL = option("--tail", "how many of the last requests (50)", Kind.INTEGER, metavar="N")
FOLLOW = option("--follow", "go on as requests end", Kind.FLAG)
_SINCE_TIME = option("--since", "from then on: an ISO 8601 time with its offset from UTC", metavar="TIME")
LIMIT = option("--limit", "at most this many (100)", Kind.INTEGER, metavar="N")
_CURSOR = option("--cursor", "where the page begins, as the page before says it", metavar="CURSOR")

REQUESTS: tuple[Action, ...] = (
    Action(
        id="request.list",
        key="v",
        label="Requests",
        help="the last requests that ended on this server's machine",
        target=Target.REQUEST,
        permission=OP,
        method="GET",
        path=f"{PREFIX}/requests",
        query=(MODEL, KEY, TEAM, STATUS, WAITED, _SINCE_TIME, LIMIT, _CURSOR),
        response=RequestPage,
        verb=("requests",),
        arguments=(TAIL, FOLLOW, MODEL, KEY, TEAM, FAILED, STATUS, WAITED, SINCE),
    ),
    Action(
        id="request.show",
        key="w",
        label="Why",
        help="why a request waited, failed or was refused, and where its time went",
        target=Target.REQUEST,
        permission=OP,
        method="GET",
        path=f"{PREFIX}/requests/{{id}}",
        response=RequestTold,
        verb=("why",),
        arguments=(Argument(name="id", help="id of the request, as its answer's `x-request-id` says", metavar="ID"),),
    ),
)
