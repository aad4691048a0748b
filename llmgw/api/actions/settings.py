"""Cluster settings."""

from llmgw.api import types as t
from llmgw.api.actions.words import A, Action, Argument, Target, V
from llmgw.api.paths import PREFIX

_KEY = Argument(name="key", help="name of the setting", metavar="KEY")

SETTINGS: tuple[Action, ...] = (
    Action(
        id="setting.list",
        label="Settings",
        help="every cluster setting with its value",
        target=Target.SETTING,
        permission=V,
        method="GET",
        path=f"{PREFIX}/settings",
        response=list[t.Setting],
        verb=("config", "list"),
        views=(("config", "reference"),),
    ),
    Action(
        id="setting.get",
        label="Setting",
        help="one cluster setting",
        target=Target.SETTING,
        permission=V,
        method="GET",
        path=f"{PREFIX}/settings/{{key}}",
        response=t.Setting,
        verb=("config", "get"),
        arguments=(_KEY,),
    ),
    Action(
        id="setting.set",
        label="Change…",
        help="change a cluster setting",
        target=Target.SETTING,
        permission=A,
        method="PUT",
        path=f"{PREFIX}/settings/{{key}}",
        request=t.SettingChange,
        response=t.Result,
        verb=("config", "set"),
        arguments=(_KEY, Argument(name="value", help="JSON, or plain text", metavar="VALUE")),
    ),
)
