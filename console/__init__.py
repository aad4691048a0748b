"""The console: a Textual client of the admin API. asyncio is at home here and nowhere else but two bridges."""
