"""Figures over time."""

from llmgw.api.actions.words import Action, Argument, Kind, Target, V, option
from llmgw.api.paths import PREFIX
from llmgw.api.series import SeriesAnswer

_OF = option(
    "--of", "cluster (the default), model:NAME, node:NAME, card:UUID or card:NODE/INDEX", Kind.LIST, metavar="A,B"
)
_FIGURES_QUERY = option("--figure", "names of figures", Kind.LIST, metavar="A,B")
_FROM = option("--from", "Unix seconds, or an ISO 8601 time with its offset from UTC (an hour before)", metavar="TIME")
_TO = option("--to", "likewise (now)", metavar="TIME")
_STEP_S = option("--step", "seconds a point spans, rounded up to what is kept", metavar="SECONDS")
_LAST = option("--last", "how far back: 15m, 24h, 7d (1h)", metavar="SPAN")
_STEP = option("--step", "what a point spans: 5s, 1m, 1h (a few hundred points)", metavar="SPAN")
_OUT = Argument(
    name="--out",
    help="spark (a line each) or table (a row a point)",
    required=False,
    default="spark",
    choices=("spark", "table"),
    metavar="FORM",
)

SERIES: tuple[Action, ...] = (
    Action(
        id="cluster.series",
        key="m",
        label="Monitor",
        help="figures over time: of the cluster, models, nodes and cards",
        target=Target.CLUSTER,
        permission=V,
        method="GET",
        path=f"{PREFIX}/series",
        query=(_FIGURES_QUERY, _OF, _FROM, _TO, _STEP_S),
        response=SeriesAnswer,
        verb=("series",),
        arguments=(
            Argument(
                name="figures",
                help="names of figures, such as work, power, requests, first_token_p95",
                kind=Kind.MANY,
                metavar="FIGURE",
            ),
            _OF,
            _LAST,
            _STEP,
            _OUT,
        ),
    ),
)
