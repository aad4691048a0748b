"""The simulated engine: the OpenAI API with timing, queues and faults on request."""
