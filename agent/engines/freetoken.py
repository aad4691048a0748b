"""FreeToken, installed by the agent or the operator: `ft serve`, a mixture of experts from memory and one card."""

from agent.engines.base import Command, Launch
from agent.engines.python_engine import Installation, PythonEngine, directory_of
from agent.provision.meant import Machine, Standing, standing
from agent.provision.recipes import FREETOKEN_NEEDS
from agent.provision.service import Provisions
from llmgw.core.capability import needed_capability, too_old
from llmgw.core.cluster import EngineBuild
from llmgw.core.config_facts import config_facts, read_config
from llmgw.core.engine_rules import given
from llmgw.core.errors import InvalidInput
from llmgw.core.flags_freetoken import CONTEXT, other_context

MAX_CONFIG_BYTES = 4 * 1024 * 1024


class FreeToken(PythonEngine):
    """Adapter of `ft serve`. It says nowhere in Prometheus' words how busy it is: routers count what they sent it."""

    name = "freetoken"
    program = "ft"
    load_metrics = None

    def __init__(
        self, *, configured: str = "", provisions: Provisions | None = None, machine: Machine | None = None
    ) -> None:
        """As every Python engine; `machine` is what its kernels run on."""
        super().__init__(configured=configured, provisions=provisions)
        self._machine = machine or Machine()

    def detect(self) -> EngineBuild | None:
        """Its version, or what this node lacks; none on a node that it is not meant for."""
        found = super().detect()
        if found is None:
            return None
        here = self._standing()
        if here.elsewhere:
            return None
        if here.lacks:
            return EngineBuild(engine=self.name, version=found.version, usable=False, why_not=here.lacks)
        return found

    def command(self, launch: Launch) -> Command:
        """The command line; raises InvalidInput when it cannot run here, or the weights are nothing it loads."""
        spec, here, weights = launch.spec, self.installed(), directory_of(launch, self.name)
        if lacks := self._standing().lacks:
            raise InvalidInput(f"{self.name} cannot be started here: {lacks}", field="engine")
        self._check_card(launch)
        args = self.check_args(spec.args, spec.env)
        if why := other_context(args, spec.context_length):
            raise InvalidInput(why, field="args")
        own = [
            *(str(here.program), "serve"),
            *("--model", str(weights)),
            *("--served-model-name", spec.model),
            *("--host", launch.host),
            *("--port", str(launch.port)),
            # The first that it sees, and it sees one (CUDA_VISIBLE_DEVICES).
            *("--gpu", "0"),
        ]
        if not given(args, CONTEXT):
            own += [CONTEXT, str(spec.context_length)]
        if not given(args, "--max-running-requests"):
            own += ["--max-running-requests", str(max(1, spec.slots))]
        # What it compiles goes under ~/.cache, which would end with the shard.
        home = {"HOME": str(launch.cache)} if launch.cache is not None else {}
        return Command(
            argv=(*own, *args),
            env={**self.environment(here), **home},
            key_variable="FREETOKEN_API_KEY",
            directories=() if launch.cache is None else (launch.cache,),
        )

    def environment(self, here: Installation) -> dict[str, str]:
        """Its own programs and the toolkit's first, with which it compiles its kernels."""
        found = super().environment(here)
        toolkit = self._machine.toolkit(FREETOKEN_NEEDS.toolkit)
        if toolkit is None:
            return found
        own, _, rest = found["PATH"].partition(":")
        return {**found, "PATH": f"{own}:{toolkit.path / 'bin'}:{rest}", "CUDA_HOME": str(toolkit.path)}

    def _standing(self) -> Standing:
        return standing(FREETOKEN_NEEDS, self._machine)

    def _check_card(self, launch: Launch) -> None:
        """Refuse what is not one card, and a card that cannot compute with weights stored as these are."""
        uuids = launch.spec.card_uuids
        if len(uuids) != 1:
            raise InvalidInput(f"{self.name} runs on one card, and this replica has {len(uuids)}", field="tp")
        card = self._machine.card(uuids[0])
        quantization = _quantization(launch)
        needed = needed_capability(self.name, quantization)
        what = f"{self.name} with {quantization} weights" if quantization else self.name
        if card is not None and (why := too_old(card.compute_capability, needed, what=what)):
            raise InvalidInput(f"{card.name} has {why}", field="gpu_class")


def _quantization(launch: Launch) -> str:
    """How the weights are stored, by their configuration; empty where it says nothing that is understood."""
    if launch.weights is None:
        return ""
    try:
        with (launch.weights / "config.json").open("rb") as stream:
            config = read_config(stream.read(MAX_CONFIG_BYTES))
    except (OSError, InvalidInput):
        return ""
    return config_facts(config, 0).quantization
