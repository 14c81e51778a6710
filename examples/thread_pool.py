"""Many streams in a program of your own: threads submit images, one network adapts to all."""

import tempfile
from concurrent.futures import ThreadPoolExecutor

import torch

import holdfast
from holdfast.models import resnet20
from holdfast.serving.service import Service, ServiceOptions

model = resnet20(10)  # yours, trained


def camera(service, name):
    """What a thread of yours does with one stream."""
    predicted = []
    for number in range(3):
        images = torch.rand(4, 3, 32, 32)  # yours
        answer = service.submit(name, images, request=f"{name}-{number}").result()
        predicted.append(answer.logits.argmax(1))
    return name, torch.cat(predicted)


with tempfile.TemporaryDirectory() as folder:  # yours, which stays
    fleet = holdfast.Fleet(model, "tent", folder=folder)
    service = Service(fleet, ServiceOptions(snapshot=5.0))
    with ThreadPoolExecutor(4) as pool:
        names = [f"camera-{index}" for index in range(4)]
        for name, classes in pool.map(lambda name: camera(service, name), names):
            print(name, classes.tolist())
    unsaved = service.drain()  # answers what waits, saves everything
    print("streams:", fleet.streams(), "not saved:", unsaved)
