"""The inventory: stages that are alive, prefixes that serve, stages that are missing. Pure."""

from s3t.inventory.inventory import Inventory, Serving

__all__ = ["Inventory", "Serving"]
