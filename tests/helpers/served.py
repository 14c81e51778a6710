"""Services on real fleets, and what streams answer beside adapters of their own."""

from contextlib import contextmanager

from toys import stream as toy_stream

import holdfast
from holdfast.serving.service import Service, ServiceOptions

METHOD = "tent(lr=0.01)"
LATER = 1e6  # seconds: a snapshot that never comes by itself


@contextmanager
def serving(net, folder, **usual):
    """Makes services that share a folder; in the end, all of them are drained."""
    services = []

    def make(model=net, method=METHOD, resident=None, **options):
        fleet = holdfast.Fleet(model, method, folder=folder, resident=resident)
        settings = {"deadline": 0.0, "snapshot": LATER, **usual, **options}
        services.append(Service(fleet, ServiceOptions(**settings)))
        return services[-1]

    yield make
    for service in services:
        service.drain()


def batches(seed=0, count=4):
    kinds = [("some", "all")[at % 2] for at in range(count)]
    return [images[:6] for images in toy_stream(kinds, seed=seed)]


def ask(service, stream, images, request=None):
    return service.submit(stream, images, request).result(60)


def alone(net, images):
    adapter = holdfast.adapt(net, METHOD)
    return [adapter(batch) for batch in images]
