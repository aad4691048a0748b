"""Cards through `nvidia-smi -q -x`: facts, figures and wear in one document.

Each `<gpu>` is read alone, so that a document that breaks off or breaks in one card loses that card only. No entity is
ever resolved: what is parsed starts after the document type.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from xml.etree import ElementTree

from agent.discovery import smi_xml_card as card_of
from agent.discovery.gpu import MAX_CARDS, NO_MEMORY, CardReading, CardSample, LostCard, ReaderFailed, instance_index
from agent.discovery.gpu_class import gpu_class, mig_class
from agent.discovery.smi import SAMPLE_EVERY_S, Smi, lost_cards, rows
from agent.discovery.smi_list import Listed, parse_list
from agent.discovery.words import bus_id, count, said
from llmgw.core.cluster import Card
from llmgw.core.wear import CardWear

_BEGIN, _END, _LAST = '<gpu id="', "</gpu>", "</nvidia_smi_log>"
_PROCESSES = re.compile(r"<processes>.*?(?:</processes>|\Z)", re.DOTALL)
"""Who uses a card is not asked here, and names of processes hold whatever their owners like."""
_HEADER = re.compile(r"<(driver_version|attached_gpus)>([^<]*)</\1>")
_CAPABILITY_FIELDS = ("uuid", "compute_cap")


@dataclass(frozen=True, kw_only=True)
class Document:
    """What the tool said, card by card."""

    driver: str = ""
    attached: int | None = None
    gpus: tuple[ElementTree.Element, ...] = ()
    problems: tuple[str, ...] = ()
    lost: tuple[LostCard, ...] = ()
    partial: bool = False
    """It breaks off, or a card's part of it cannot be read."""


class SmiXml:
    """A GpuReader over the tool's XML."""

    name = "nvidia-smi -q -x"
    sample_every_s = asked_every_s = SAMPLE_EVERY_S

    def __init__(self, smi: Smi | None = None) -> None:
        self._smi = smi or Smi()
        self._capabilities: dict[str, str] | None = None
        self._last = Document()

    def open(self) -> None:
        """See whether the tool answers with cards that have names; raises ReaderFailed."""
        gpus = self._described().gpus
        if gpus and not any(card_of.uuid(gpu) or card_of.error(gpu, "uuid") for gpu in gpus):
            raise ReaderFailed("it names no card")

    def cards(self) -> CardReading:
        """Facts of each card; raises ReaderFailed."""
        document = self._described()
        if self._capabilities is None:
            self._capabilities = self._ask_capabilities()
        split = any(card_of.split(gpu) for gpu in document.gpus)
        return parse_cards(document, capabilities=self._capabilities, listed=self._list() if split else {})

    def sample(self) -> tuple[CardSample, ...]:
        """Figures of each card; raises ReaderFailed."""
        self._last = self._ask()
        return parse_samples(self._last, listed=self._list() if any(map(card_of.split, self._last.gpus)) else {})

    def wear(self) -> Mapping[str, CardWear]:
        """Counts of each card, as of the last sample where there is one; raises ReaderFailed."""
        return parse_wear(self._last if self._last.gpus else self._ask())

    def close(self) -> None:
        """Nothing is kept open."""

    def _described(self) -> Document:
        """The document, with a card in it; raises ReaderFailed: words without one do not say that there is none."""
        document = self._ask()
        if not document.gpus and not document.lost:
            raise ReaderFailed("it describes no card")
        return document

    def _ask(self) -> Document:
        return parse_document(self._smi.say("-q", "-x"))

    def _list(self) -> Mapping[str, Listed]:
        """Names and profiles of MIG instances, which the XML does not have; none where the tool does not say."""
        try:
            return parse_list(self._smi.say("-L"))
        except ReaderFailed:
            return {}

    def _ask_capabilities(self) -> dict[str, str]:
        """Compute capabilities by UUID, which the XML does not have either; older drivers do not know the question."""
        try:
            text = self._smi.say(f"--query-gpu={','.join(_CAPABILITY_FIELDS)}", "--format=csv,noheader")
        except ReaderFailed:
            return {}
        return {row["uuid"]: said(row["compute_cap"]) for row in rows(text, _CAPABILITY_FIELDS) if row}


def parse_document(text: str) -> Document:
    """The document by card; what is no XML, or no card, is a problem and no more."""
    gpus: list[ElementTree.Element] = []
    problems: list[str] = []
    for part in _PROCESSES.sub("", text).split(_BEGIN)[1 : MAX_CARDS + 1]:
        inside, _, _ = part.partition(_END)
        try:
            gpus.append(ElementTree.fromstring(f"{_BEGIN}{inside}{_END}"))
        except (ElementTree.ParseError, ValueError):
            problems.append(f"nvidia-smi's words on the card at {bus_id(inside[:40]) or '?'} cannot be read.")
    header = dict(_HEADER.findall(text))
    attached = count(header.get("attached_gpus"))
    partial = bool(problems) or (bool(gpus) and _LAST not in text)
    if attached is not None and attached != len(gpus) + len(problems):
        problems.append(f"The driver counts {attached} cards and describes {len(gpus)}.")
    return Document(
        driver=said(header.get("driver_version")),
        attached=attached,
        gpus=tuple(gpus),
        problems=tuple(problems),
        lost=lost_cards(text),
        partial=partial or (attached is not None and attached > len(gpus)),
    )


def parse_cards(
    document: Document, *, capabilities: Mapping[str, str] | None = None, listed: Mapping[str, Listed] | None = None
) -> CardReading:
    """Facts of every card and instance that has a UUID."""
    cards: list[Card] = []
    lost: list[LostCard] = []
    problems = list(document.problems)
    for place, gpu in enumerate(document.gpus):
        uuid = card_of.uuid(gpu)
        if not uuid:
            if why := card_of.error(gpu, "uuid"):
                lost.append(LostCard(bus_id=bus_id(gpu.get("id")), why=why))
            else:
                problems.append(f"The card at {gpu.get('id', '?')[:40]} has no UUID, so nothing can be placed on it.")
            continue
        capability = (capabilities or {}).get(uuid, "")
        card = _card(gpu, uuid, place, document.driver, capability)
        cards.append(card)
        cards.extend(_instance(card, mig, (listed or {})) for mig in card_of.instances(gpu))
    return CardReading(
        cards=tuple(cards[:MAX_CARDS]),
        problems=tuple(problems),
        lost=(*document.lost, *lost),
        partial=document.partial,
    )


def parse_samples(document: Document, *, listed: Mapping[str, Listed] | None = None) -> tuple[CardSample, ...]:
    """Figures of every card and instance that has a UUID."""
    return tuple(_samples(document, listed or {}))[:MAX_CARDS]


def parse_wear(document: Document) -> dict[str, CardWear]:
    """Counts by UUID: of two cards that bear one, the first's, which is listed."""
    worn: dict[str, CardWear] = {}
    for gpu in document.gpus:
        if uuid := card_of.uuid(gpu):
            worn.setdefault(uuid, card_of.wear(gpu))
    return worn


def _samples(document: Document, listed: Mapping[str, Listed]) -> Iterator[CardSample]:
    for gpu in document.gpus:
        uuid = card_of.uuid(gpu)
        if not uuid:
            continue
        sample = card_of.sample(gpu, uuid)
        yield sample
        for mig in card_of.instances(gpu):
            yield CardSample(
                uuid=card_of.instance_uuid(uuid, mig, listed),
                memory_used_bytes=card_of.memory_used(mig),
                temperature_c=sample.temperature_c,
                memory_temperature_c=sample.memory_temperature_c,
            )


def _card(gpu: ElementTree.Element, uuid: str, place: int, driver: str, capability: str) -> Card:
    name = card_of.word(gpu, "product_name")
    board_mib = card_of.memory_total(gpu)
    split, errors = card_of.split(gpu), card_of.errors(gpu)
    return Card(
        uuid=uuid,
        index=place,
        name=name,
        gpu_class=gpu_class(name, board_mib),
        memory_total_bytes=None if split or errors else board_mib,
        compute_capability=capability,
        driver=driver,
        healthy=not errors,
        problem=card_of.problem(errors, split=split, memory=board_mib),
        bus_id=bus_id(gpu.get("id")),
        pcie_generation=count(card_of.word(gpu, "pci/pci_gpu_link_info/pcie_gen/max_link_gen")) or None,
        pcie_width=count(card_of.word(gpu, "pci/pci_gpu_link_info/link_widths/max_link_width")) or None,
    )


def _instance(card: Card, mig: ElementTree.Element, listed: Mapping[str, Listed]) -> Card:
    gpu_instance, compute_instance = card_of.instance_ids(mig)
    memory = card_of.memory_total(mig)
    known = listed.get(f"{card.uuid}/{card_of.word(mig, 'index')}")
    profile = known.profile if known else ""
    return Card(
        uuid=card_of.instance_uuid(card.uuid, mig, listed),
        index=instance_index(card.index, gpu_instance, compute_instance),
        name=f"{card.name} MIG {profile}".removesuffix(" MIG "),
        gpu_class=mig_class(card.gpu_class, profile, memory),
        memory_total_bytes=memory if card.healthy else None,
        compute_capability=card.compute_capability,
        driver=card.driver,
        healthy=card.healthy,
        problem=("" if memory else NO_MEMORY) if card.healthy else card.problem,
        bus_id=card.bus_id,
        parent=card.uuid,
        mig_profile=profile,
    )
