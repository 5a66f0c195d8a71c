"""Which stages are alive, which prefixes serve, which are missing. Pure."""

from s3t.inventory.inventory import Inventory, Serving

__all__ = ["Inventory", "Serving"]
