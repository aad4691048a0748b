"""Everything that can be asked of a cluster, once. Routes, permissions, `ctl` verbs and console keys follow from it.

An action that is not here does not exist: the admin app serves no route without one, and `ctl` knows no other verb.
Pure data, no behaviour; importing it costs a few milliseconds.
"""

from llmgw.api.actions.bands import BANDS
from llmgw.api.actions.cluster import AUDIT, LOGS, STATUS, WATCH
from llmgw.api.actions.engines import ENGINES
from llmgw.api.actions.keys import KEYS, USAGE
from llmgw.api.actions.models import MODELS
from llmgw.api.actions.nodes import JOIN, NODES
from llmgw.api.actions.requests import REQUESTS
from llmgw.api.actions.scopes import SCOPES
from llmgw.api.actions.series import SERIES
from llmgw.api.actions.settings import SETTINGS
from llmgw.api.actions.weights import WEIGHTS
from llmgw.api.actions.words import Action as Action
from llmgw.api.actions.words import Argument as Argument
from llmgw.api.actions.words import Danger as Danger
from llmgw.api.actions.words import Kind as Kind
from llmgw.api.actions.words import Permission as Permission
from llmgw.api.actions.words import Target as Target

ACTIONS: tuple[Action, ...] = (
    *STATUS,
    *NODES,
    *ENGINES,
    *MODELS,
    *KEYS,
    *SCOPES,
    *BANDS,
    *USAGE,
    *JOIN,
    *LOGS,
    *REQUESTS,
    *SETTINGS,
    *AUDIT,
    *WEIGHTS,
    *WATCH,
    *SERIES,
)

BY_ID: dict[str, Action] = {action.id: action for action in ACTIONS}


def action(action_id: str) -> Action:
    """The action of that id; raises KeyError."""
    return BY_ID[action_id]
