"""The node's side of the mirror's HTTP API. A mirror that is away for a moment is asked again."""

import ssl
from urllib.parse import quote

import msgspec

from llmgw.core.errors import InvalidInput, Unavailable
from llmgw.core.weights import SetAnswer, SetRequest, check_manifest
from llmgw.transfer.download import Policy
from llmgw.transfer.errors import Interrupted, Refused
from llmgw.transfer.http import Remote, Timeouts, request

MAX_ANSWER_BYTES = 16 * 1024 * 1024
_MAX_MESSAGE = 400


class MirrorClient:
    """Asks one mirror for sets. `url` may be changed when the cluster names another."""

    def __init__(self, url: str, *, tls: ssl.SSLContext | None, token: str | None, policy: Policy) -> None:
        self.url = url
        self._tls = tls
        self._token = token
        self._policy = policy

    async def ensure(self, source: str) -> SetAnswer:
        """Have the mirror fetch the set, and hear where it stands. Raises LlmgwError."""
        body = msgspec.json.encode(SetRequest(source=source))
        pause = self._policy.first_pause_s
        for attempt in range(1, self._policy.attempts + 1):
            try:
                return await self._ask("/v1/sets", body)
            except Interrupted as error:
                if attempt == self._policy.attempts:
                    raise Unavailable(f"the mirror is away: {error.message} (tried {attempt} times)") from error
            await self._policy.sleep(pause)
            pause = min(2 * pause, self._policy.longest_pause_s)
        raise AssertionError("unreachable")

    def remote(self, set_id: str, name: str) -> Remote:
        """Where a file of a set is."""
        return self._remote(f"/v1/sets/{set_id}/files/{quote(name)}")

    async def _ask(self, path: str, body: bytes) -> SetAnswer:
        headers = {"Content-Type": "application/json"}
        async with request(self._remote(path), method="POST", headers=headers, body=body) as response:
            data = await response.read(MAX_ANSWER_BYTES)
            if response.status >= 500:
                raise Interrupted(f"it answers {response.status}")
            if response.status != 200:
                raise Refused(f"the mirror refuses: {_message(data, response.status)}", status=response.status)
        try:
            answer = msgspec.json.decode(data, type=SetAnswer)
        except msgspec.MsgspecError as error:
            raise Refused(f"the mirror answers something unexpected ({error})") from error
        if answer.manifest is not None and answer.manifest.files:
            check_manifest(answer.manifest)
        return answer

    def _remote(self, path: str) -> Remote:
        if not self.url:
            raise InvalidInput("this node was not told where the mirror is; it joins again or waits for a server")
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        # The mirror is on the cluster's own network: a proxy for the outside does not reach it.
        return Remote(
            url=self.url.rstrip("/") + path, headers=headers, tls=self._tls, proxies=False, timeouts=Timeouts()
        )


def _message(data: bytes, status: int) -> str:
    try:
        problem = msgspec.json.decode(data, type=dict[str, object])
        message = problem.get("message")
    except msgspec.MsgspecError:
        message = None
    return message[:_MAX_MESSAGE] if isinstance(message, str) else f"status {status}"
