"""The request log read back: what the routers of this machine wrote, the newest first, a bounded part at a time.

Files are read from their ends, in a thread, while routers write them and put them aside. Lines of one file are in the
order of their times, as far as routers' turns at writing allow; a line that is torn is passed over. All pages that
follow one another are parts of one look at the log: what a page leaves off, and nothing else, is in the next.
"""

import contextlib
import heapq
from pathlib import Path

import msgspec
import trio

from llmgw.api.request_types import RequestPage, RequestQuery, RequestTold
from llmgw.control.request_cursor import Places, cursor_of, no_cursor, places_of
from llmgw.control.request_lines import Budget, Chain, Logs, Spent, backward, line_of, open_logs
from llmgw.core import why
from llmgw.core.errors import NotFound
from llmgw.core.requests import RequestLine

SCAN_BYTES = 64 * 1024 * 1024
"""Looked through for one page."""
SEARCH_BYTES = 4 * 1024 * 1024 * 1024
"""Looked through for one id: more than the files of many routers hold by default."""
SLACK_S = 2.0
"""Times in one file may be out of order by this much, while two routers write to it."""
MAX_ID_CHARS = 80
AT_ONCE = 2
"""Questions answered at the same time; others wait."""


class RequestReader:
    """The requests of one machine's routers."""

    def __init__(self, directory: Path, *, scan_bytes: int = SCAN_BYTES) -> None:
        self._directory = directory
        self._scan_bytes = scan_bytes
        # A log without the id that is looked for is read to its end: those who look must not take everybody's threads.
        self._threads = trio.CapacityLimiter(AT_ONCE)

    async def page(self, query: RequestQuery) -> RequestPage:
        """Requests that match; raises InvalidInput for a cursor of nobody's."""
        places = None if query.cursor is None else places_of(query.cursor)
        return await trio.to_thread.run_sync(self._page, query, places, limiter=self._threads)

    async def told(self, request_id: str) -> RequestTold:
        """One request and why it went as it did; raises NotFound."""
        line = None
        if 0 < len(request_id) <= MAX_ID_CHARS and request_id.isascii():
            line = await trio.to_thread.run_sync(self._find, request_id, limiter=self._threads)
        if line is None:
            raise NotFound(
                f"no request {request_id[:MAX_ID_CHARS]!r} is in the log of this machine's routers: it is older than "
                "the files kept, another machine's router served it, or it was not written down "
                "(`llmgw ctl config get router.request_log.keep`)"
            )
        return RequestTold(request=line, why=why.sentences(line))

    def _page(self, query: RequestQuery, places: Places | None) -> RequestPage:
        found: list[RequestLine] = []
        with contextlib.ExitStack() as stack:
            logs = open_logs(stack, self._directory)
            if places is not None and (logs is None or logs.directory != places.directory):
                raise no_cursor(query.cursor or "")
            if logs is None:
                return RequestPage(requests=())
            chains = self._chains(logs, query, places)
            try:
                for told in heapq.merge(*(chain.lines() for chain in chains), key=lambda told: -told.line.at):
                    line = told.line
                    if query.since is not None and line.at < query.since - SLACK_S:
                        return RequestPage(requests=tuple(found))
                    told.chain.offset = told.offset
                    if query.matches(line):
                        found.append(line)
                        if len(found) >= query.limit:
                            return RequestPage(requests=tuple(found), cursor=_cursor(logs, chains))
            except Spent:
                return RequestPage(requests=tuple(found), cursor=_cursor(logs, chains))
        return RequestPage(requests=tuple(found))

    def _chains(self, logs: Logs, query: RequestQuery, places: Places | None) -> list[Chain]:
        """The routers' lines from where the page begins; raises InvalidInput for places that are none of theirs."""
        budget = Budget(self._scan_bytes, len(logs.routers))
        chains = {router: Chain(router, files, budget) for router, files in logs.routers.items()}
        if places is None:
            return list(chains.values())
        going_on = {place.router: place for place in places.routers if place.router in chains}
        if not all(chains[router].go_to(place) for router, place in going_on.items()):
            raise no_cursor(query.cursor or "")
        return [chain for router, chain in chains.items() if router in going_on]

    def _find(self, request_id: str) -> RequestLine | None:
        mark = b'{"id":%b,' % msgspec.json.encode(request_id)
        budget = Budget(SEARCH_BYTES)
        with contextlib.ExitStack() as stack, contextlib.suppress(Spent):
            logs = open_logs(stack, self._directory)
            for router, files in logs.routers.items() if logs is not None else ():
                for file in files:
                    for _, raw in backward(file.descriptor, file.size, budget, mark):
                        line = line_of(raw, router)
                        if line is not None:
                            return line
        return None


def _cursor(logs: Logs, chains: list[Chain]) -> str:
    return cursor_of(Places(logs.directory, tuple(chain.place for chain in chains)))
