"""What tokens cost. A price in currency per million tokens is, by the same number, micros per token."""

import msgspec


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """Currency per million tokens."""

    input: float = 0.0
    cached_input: float | None = None
    """Of prompt tokens the engine had in its cache; none costs what `input` does."""
    output: float = 0.0


def cost_micros(prices: Prices | None, *, input_tokens: int, cached_tokens: int, output_tokens: int) -> int:
    """Micros for a request's tokens, `cached_tokens` being part of `input_tokens`; rounded to the nearest."""
    if prices is None:
        return 0
    cached_price = prices.input if prices.cached_input is None else prices.cached_input
    fresh = input_tokens - cached_tokens
    return round(fresh * prices.input + cached_tokens * cached_price + output_tokens * prices.output)
