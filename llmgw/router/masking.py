"""A provider's key that comes back in an answer's body: it is covered on the way to the client, length kept.

Providers have been seen to repeat the key they were shown in their errors, amid a stream too. Whatever a body is cut
into, no byte of the key passes: as many bytes as could be its beginning wait for what follows them.
"""

COVER = b"*"


class Mask:
    """Covers one secret in a body that comes in pieces. The body's length stays what its head says."""

    __slots__ = ("_forms", "_held", "_longest")

    def __init__(self, secret: str) -> None:
        """`secret` is not empty, and ASCII without line ends: it is a header's value."""
        plain = secret.encode("ascii")
        escaped = plain.replace(b"/", b"\\/")  # as some JSON encoders write it
        self._forms = (plain,) if escaped == plain else (plain, escaped)
        self._longest = len(self._forms[-1])
        self._held = b""

    def feed(self, data: bytes, *, last: bool) -> bytes:
        """What may be passed on after these bytes; all that is left with the `last`."""
        data = self.cover(self._held + data)
        keep = 0 if last else self._may_begin(data)
        self._held = data[len(data) - keep :]
        return data[: len(data) - keep]

    def cover(self, data: bytes) -> bytes:
        """The same for what is whole: nothing is held back."""
        for form in self._forms:
            data = data.replace(form, COVER * len(form))
        return data

    def _may_begin(self, data: bytes) -> int:
        """Length of the longest end of `data` that is a beginning of the secret."""
        if data.endswith(b"\n"):  # most reads of a stream; a key has no line end
            return 0
        for length in range(min(self._longest - 1, len(data)), 0, -1):
            end = data[-length:]
            if any(form.startswith(end) for form in self._forms):
                return length
        return 0

    def hides(self, value: bytes) -> bool:
        """Whether a header's value holds the secret."""
        return any(form in value for form in self._forms)
