"""What several routers say of broken replicas, in one row and one sentence."""

from llmgw.control.breakers import Breaker, gathered, sentences
from llmgw.core.routing import Activity

MODELS = {"r1": "m", "r2": "m", "r3": "other"}


def test_the_worst_of_all_routers_counts() -> None:
    said = [
        Activity(breakers={"r1": "half-open", "r2": "half-open"}, breaker_failures={"r1": "it answers 500"}),
        Activity(breakers={"r1": "open"}, breaker_failures={"r1": "refused"}),
        Activity(),
    ]
    found = gathered(said)
    assert found == {"r1": Breaker(1, 3, "it answers 500"), "r2": Breaker(0, 3, "")}
    assert (found["r1"].state, found["r2"].state) == ("open", "half-open")
    assert gathered([Activity(), Activity()]) == {}


def test_an_operator_reads_of_those_that_are_open_and_there() -> None:
    broken = {
        "r3": Breaker(1, 1, ""),
        "r1": Breaker(2, 2, "it answers 500"),
        "r2": Breaker(0, 2, "it answers 500"),
        "gone": Breaker(2, 2, "it answers 500"),
        "external:gpt:0": Breaker(1, 2, "its provider's limits are reached (429)"),
    }
    assert sentences(broken, MODELS.get) == (
        "endpoint external:gpt:0 of model gpt: breaker open on 1 of 2 routers, last failure: "
        "its provider's limits are reached (429)",
        "replica r1 of model m: breaker open on 2 of 2 routers, last failure: it answers 500",
        "replica r3 of model other: breaker open on 1 of 1 router",
    )
