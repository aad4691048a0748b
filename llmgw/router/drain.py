"""The end of a router: asked for once or more, and every further word can only bring it nearer."""

import trio


class Drain:
    """Accept nothing more, finish what is open until `deadline`, end. Nothing undoes it."""

    def __init__(self) -> None:
        self.requested = trio.Event()
        """Set when the router must stop accepting."""
        self.scope = trio.CancelScope()
        """Encloses waiting for what is open; its deadline is the drain's."""

    def request(self, deadline_s: float) -> None:
        """End within `deadline_s` from now, or sooner if that was said before."""
        self.scope.deadline = min(self.scope.deadline, trio.current_time() + max(0.0, deadline_s))
        self.requested.set()
