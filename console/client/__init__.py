"""How the console reaches a cluster: the live feed and log streams by httpx, single calls by the API's own client."""
