"""ComfyUI's flags: what a profile may give, and what the agent sets. Names are those of its argument parser in 2026.

Only names that its versions have had for long are here. Left out on purpose is whatever names a file, an address or
code to load, and what opens the server to other sites.
"""

from llmgw.core.flag_kinds import FLOAT, INT, choice, own, table

ALLOWED = table(
    whole=(INT, "--cache-lru --preview-size"),
    number=(FLOAT, "--reserve-vram --max-upload-size"),
    preview=(choice("none", "auto", "latent2rgb", "taesd"), "--preview-method"),
    hashing=(choice("md5", "sha1", "sha256", "sha512"), "--default-hashing-function"),
    switch=(
        None,
        "--cuda-malloc --disable-cuda-malloc --force-fp32 --force-fp16 --fp32-unet --fp64-unet --bf16-unet "
        "--fp16-unet --fp8_e4m3fn-unet --fp8_e5m2-unet --fp16-vae --fp32-vae --bf16-vae --cpu-vae "
        "--fp8_e4m3fn-text-enc --fp8_e5m2-text-enc --fp16-text-enc --fp32-text-enc --bf16-text-enc "
        "--force-channels-last --supports-fp8-compute --cache-classic --cache-none --use-split-cross-attention "
        "--use-quad-cross-attention --use-pytorch-cross-attention --use-sage-attention --use-flash-attention "
        "--disable-xformers --force-upcast-attention --dont-upcast-attention --gpu-only --highvram --lowvram "
        "--novram --disable-smart-memory --deterministic --disable-mmap --disable-metadata "
        "--disable-all-custom-nodes",
    ),
)
"""Every spelling of every flag a profile may give."""

_CODE = "it fetches or loads code"
SETS_ITSELF = own(
    listen=("the agent chooses where the engine listens", "--listen --port --auto-launch --windows-standalone-build"),
    weights=("the model is the catalog entry's source", "--extra-model-paths-config --models-directory"),
    places=(
        "the agent gives each replica directories of its own",
        "--base-directory --output-directory --input-directory --temp-directory --user-directory --database-url",
    ),
    cards=(
        "the scheduler chooses the card",
        "--cuda-device --default-device --directml --oneapi-device-selector --cpu",
    ),
    code=(
        _CODE,
        "--front-end-version --front-end-root --enable-manager --enable-manager-legacy-ui --whitelist-custom-nodes",
    ),
    home=("an engine calls nobody", "--comfy-api-base --disable-api-nodes --disable-partner-nodes --offline"),
    tls=("engines speak plain HTTP", "--tls-keyfile --tls-certfile"),
    open=("it opens the server to other sites", "--enable-cors-header"),
    writes=("it can write a file", "--verbose"),
)
"""Flags the agent sets, and what to write instead."""
