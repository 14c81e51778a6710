"""Many streams, one shared network: `holdfast.Fleet`."""
