"""The admin app: one file an endpoint group, each handler bound to an action of the registry."""

from llmgw.web.admin.app import admin_app

__all__ = ["admin_app"]
