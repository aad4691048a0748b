"""What our launcher of llama.cpp says of where it computes, and its reader looks for: it would not say so by itself."""

CARDS_SEEN = "compute: cards seen: "
"""The names of the cards that this build can use follow; how many layers come to be on them is not known yet."""
NO_CARD_SEEN = "compute: no card seen that this build can use, so all layers are on the CPU"
NO_CARD_ASKED = "compute: all layers are on the CPU, as --n-gpu-layers 0 asks"
