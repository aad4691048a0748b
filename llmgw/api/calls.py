"""What every group of the admin client's calls is made of."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TypeVar

import msgspec

T = TypeVar("T")
Query = Mapping[str, str | int | bool | None]
"""Query parameters; those that are none are left out."""


class Calls(ABC):
    """One method an action; `_call` is the client's."""

    @abstractmethod
    def _call(
        self,
        action_id: str,
        type_: type[T],
        params: Mapping[str, str] | None = None,
        query: Query | None = None,
        body: msgspec.Struct | None = None,
    ) -> T:
        """One request, its answer decoded; raises ClientError."""
