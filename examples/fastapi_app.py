"""The endpoints of `holdfast serve` inside an app of your own: uvicorn examples.fastapi_app:app

Any ASGI framework can mount them; here FastAPI, which is not among holdfast's extras.
"""

from contextlib import asynccontextmanager

import torch
from fastapi import FastAPI

import holdfast
from holdfast.models import resnet20
from holdfast.serving.front import Front, Served
from holdfast.serving.service import Service

model = resnet20(10)  # yours, trained
fleet = holdfast.Fleet(model, "tent", folder="streams", window=16)
service = Service(fleet)
served = Served(name="model", version="1", method="tent", side=32, classes=10)


@asynccontextmanager
async def lifespan(app: FastAPI):
    yield
    service.drain()  # on SIGTERM: answers what waits, saves everything


app = FastAPI(lifespan=lifespan)


@app.post("/noise/{stream}")
def noise(stream: str) -> list[int]:
    """An endpoint of your own, on the same streams."""
    logits = service.submit(stream, torch.rand(4, 3, 32, 32)).result().logits
    return logits.argmax(1).tolist()


app.mount("/", Front(service, served).app)  # /v2/models/model/infer, /metrics and the page
