"""The control plane's services: leadership, catalog, reconciler, inventory, feed, routers' supervision, audit."""
