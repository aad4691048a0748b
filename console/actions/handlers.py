"""Which of the registry's actions the console offers. Labels and keys are the registry's.

Adding an action is adding a line to one of the lists: the first handler on a key has it.
"""

from console.actions.access import ACCESS
from console.actions.handler import Handler
from console.actions.machines import MACHINES
from console.actions.models import MODELS

HANDLERS: tuple[Handler, ...] = (*MODELS, *ACCESS, *MACHINES)
