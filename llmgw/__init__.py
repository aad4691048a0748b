"""llmgw: GPU machines as one LLM service, run from a terminal."""

__version__ = "0.1.0"
