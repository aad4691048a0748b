"""The app behind `public.sock`, to which routers relay what is not inference. No admin route, no way to one.

`/leader` is for load balancers, which look at the status alone: 200 on the machine whose server leads, 503 elsewhere.
"""

from quart import Response
from quart_trio import QuartTrio

from llmgw.core.errors import Unavailable
from llmgw.web.app import new_app
from llmgw.web.bodies import document
from llmgw.web.ports import PublicControl


def public_app(control: PublicControl) -> QuartTrio:
    """The public app: `/leader` says whether this server leads, and who does."""
    app = new_app("llmgw.public")

    async def leader() -> Response:
        answer = await control.leader()
        if answer.leader is None:
            raise Unavailable("there is no leader; one is elected within 12 s while the database answers")
        return document(answer, status=200 if answer.is_self else 503)

    app.add_url_rule("/leader", "leader", leader, methods=["GET"], provide_automatic_options=False)
    return app
