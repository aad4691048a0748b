"""A card's class: a slug of its model and memory, the same for every card an operator would call the same.

`NVIDIA H100 80GB HBM3` and `NVIDIA H100 PCIe` are both `h100-80g`: vendor words, form factor and memory technology are
left out, and the memory is the size the card is sold with, not what the driver leaves of it. A share of a card is
another class than the card: a MIG instance by its profile (`a100-80g-mig-3g.40gb`), a vGPU by its own name
(`v100d-8c-8g`). A chip that uses the node's memory has no size (`gb10`, `orin`): that is the machine's.
"""

import re

_MIB_PER_GIB = 1024
_SOLD_SIZES_GB = (1, 2, 3, 4, 5, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 64, 72, 80, 94, 96, 128, 141, 144, 180, 192)
"""Sizes cards are sold with, so that 45,068 MiB of an A40 under ECC are the 48 GB on its box."""
_SOLD_SIZES_LARGE_GB = (256, 268, 288, 384)
_ECC_AND_FIRMWARE = 1.08
"""A driver shows at most this factor less than is on the box (ECC takes 1/16, firmware some more)."""

_VENDORS = "nvidia amd intel tesla quadro geforce grid graphics device gpu"
_VENDOR_WORDS = frozenset(_VENDORS.split())
_FORMS = (
    "sxm sxm2 sxm3 sxm4 sxm5 sxm6 pcie pci nvl hbm2 hbm2e hbm3 hbm3e gddr6 gddr6x gddr7 oam "
    "generation edition server workstation max q blackwell"
)
_FORM_WORDS = frozenset(_FORMS.split())
_UNIFIED = re.compile(r"\b(gb10|orin|xavier|thor|tegra|nvgpu)\b", re.IGNORECASE)
_SIZE_WORD = re.compile(r"[0-9]+(\.[0-9]+)?gb?")
_WORD = re.compile(r"[a-z0-9.]+")


def gpu_class(name: str, memory_bytes: int | None) -> str:
    """`h100-80g`, `rtx-pro-6000-96g`, `6000-24g`; without a memory figure the slug has no size (`gb10`)."""
    name = name.lower().replace("(nvgpu)", "")
    words = [word for word in _WORD.findall(name) if word not in _VENDOR_WORDS]
    kept = [word for word in words if word not in _FORM_WORDS and not _SIZE_WORD.fullmatch(word)]
    # "RTX 6000" and "6000" are one card, while "RTX PRO 6000" is another.
    if kept[:1] in (["rtx"], ["gtx"]) and kept[1:2] != ["pro"] and len(kept) > 1:
        kept = kept[1:]
    slug = "-".join(kept).strip(".-") or "gpu"
    return slug if not memory_bytes or uses_host_memory(name) else f"{slug}-{sold_size_gb(memory_bytes)}g"


def mig_class(card_class: str, profile: str, memory_bytes: int | None) -> str:
    """`a100-80g-mig-3g.40gb`; by the instance's memory where the driver does not name the profile."""
    word = ".".join(_WORD.findall(profile.lower())) or (f"{round(memory_bytes / 1024**3)}gb" if memory_bytes else "")
    return f"{card_class}-mig-{word}".rstrip("-")


def uses_host_memory(name: str) -> bool:
    """Whether the chip is one that has no memory of its own, so that a driver without a figure for it is right."""
    return _UNIFIED.search(name) is not None


def sold_size_gb(memory_bytes: int) -> int:
    """The size on the box for what a driver reports; the next whole GiB for a size nobody sells."""
    gib = memory_bytes / 1024**3
    for size in (*_SOLD_SIZES_GB, *_SOLD_SIZES_LARGE_GB):
        if gib <= size + 0.05 and size <= gib * _ECC_AND_FIRMWARE:
            return size
    return max(1, round(gib))
