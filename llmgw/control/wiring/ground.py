"""What every other service stands on: the store, who leads, what is known of the cluster, and what is in force."""

import logging
from collections.abc import Callable
from functools import partial

import trio

from llmgw.control import identity
from llmgw.control.catalog import Catalog
from llmgw.control.client_tls import ClientCertificate
from llmgw.control.database import Database
from llmgw.control.external import private_files
from llmgw.control.inventory import Inventory
from llmgw.control.leadership import Leadership
from llmgw.control.local_files import LocalFiles
from llmgw.control.own_addresses import OwnAddresses
from llmgw.control.pki import Authority
from llmgw.control.settings_in_force import SettingsInForce
from llmgw.control.touched import Touched
from llmgw.control.wake import Wake
from llmgw.core.config import ServerConfig
from llmgw.core.layout import ServerLayout
from llmgw.store.listen import Listener

log = logging.getLogger(__name__)


class Ground:
    """Made first, of what the process has opened."""

    def __init__(
        self,
        config: ServerConfig,
        layout: ServerLayout,
        database: Database,
        certificate: ClientCertificate,
        *,
        settings_read: Callable[[], None],
        router_port: Callable[[], int],
    ) -> None:
        """`settings_read` is called whenever the settings were read; `router_port` gives 0 while no router tells."""
        self.config = config
        self.layout = layout
        self.database = database
        self.store = database.store
        self.private = private_files(config, layout)
        self.settings = SettingsInForce(settings_read)
        self.read_settings = partial(self.settings.read, self.store)
        self.addresses = OwnAddresses(config, tls=lambda: certificate.on, router_port=router_port)
        self.secret = identity.cluster_secret(layout)
        self.authority = Authority.open(layout.secrets, names=[config.advertise] if config.advertise else [])
        self.wake = Wake()
        self.touched = Touched()
        self.listener = Listener(database.conninfo, on_problem=log.warning)
        self.leadership = Leadership(self.store, identity.server_id(layout))
        self.catalog = Catalog(self._catalog_changed)
        self.inventory = Inventory(trio.current_time, self.wake.set, self.touched)
        self.local_files = LocalFiles(certificate, lambda: [e.model for e in self.catalog.entries()], self.private)

    def source_changed(self, source: str) -> None:
        """The weights of a source moved."""
        self.touched.source(source)
        self.wake.set()

    def _catalog_changed(self) -> None:
        self.touched.catalog()
        self.wake.set()
