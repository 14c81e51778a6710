"""Streams shared out between replicas on a Ray cluster: serve run examples.ray_serve:app

Run as a script it starts a cluster of this machine alone. Takes the extra [ray].
"""

import os
import tempfile
from pathlib import Path

import torch
from ray import serve

import holdfast
from holdfast.models import resnet20
from holdfast.serving.front import Front, Served
from holdfast.serving.ray_serve import deployment
from holdfast.serving.service import Service, ServiceOptions

# Yours, which stays, and which all machines of the cluster share.
FOLDER = Path(os.environ.get("STREAMS", tempfile.gettempdir())) / "streams"


def build():
    """Every replica calls it, in its own process."""
    torch.manual_seed(0)
    model = resnet20(10)  # yours, trained; the same in every replica
    fleet = holdfast.Fleet(model, "tent", folder=FOLDER, window=16)
    service = Service(fleet, ServiceOptions(snapshot=5.0))
    return Front(service, Served(name="model", version="1", method="tent", side=32, classes=10))


@serve.deployment
class Cameras:
    """A deployment of your own, beside the streams."""

    def __init__(self, streams):
        self.streams = streams

    async def look(self, camera, images):
        # The session sends a stream to the replica that has it.
        streams = self.streams.options(session_id=camera)
        return (await streams.infer.remote(camera, images)).argmax(1).tolist()


streams = deployment(replicas=2, ray_actor_options={"num_cpus": 0.5}).bind(build)
# Or without one: app = application(build, replicas=2), with the endpoints of `holdfast serve`.
app = Cameras.bind(streams)


if __name__ == "__main__":
    cameras = serve.run(app, route_prefix=None)
    for number in range(3):
        for camera in ("front", "back", "side"):
            classes = cameras.look.remote(camera, torch.rand(4, 3, 32, 32)).result()
            print(camera, number, classes)
    serve.shutdown()  # answers what waits, saves everything
    fleet = build().service.fleet
    print("streams:", {name: fleet.notes(name, look=True)["images"] for name in fleet.streams()})
