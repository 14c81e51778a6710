"""A plain client of a server, which tells a refusal from no answer at all."""

from __future__ import annotations

import http.client
import json
import time
from typing import Any

import torch
from torch import Tensor


class Unreachable(Exception):  # noqa: N818
    """No answer: whether it was learnt is not known."""


class Refused(Exception):  # noqa: N818
    def __init__(self, status: int, text: str):
        super().__init__(f"{status}: {text}")
        self.status = status


class Client:
    def __init__(self, port: int):
        self.port = port

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(repr(error)) from None
        finally:
            connection.close()

    def told(self, method: str, path: str, *arguments: Any) -> dict[str, Any]:
        status, text = self.ask(method, path, *arguments)
        if status != 200:
            raise Refused(status, text.decode(errors="replace")[:300])
        answer: dict[str, Any] = json.loads(text)
        return answer

    def infer(self, stream: str, images: Tensor, request: str | None = None) -> Tensor:
        given = {
            "name": "images",
            "datatype": "FP32",
            "shape": list(images.shape),
            "data": images.flatten().tolist(),
        }
        body = json.dumps({"inputs": [given], **({"id": request} if request else {})}).encode()
        answer = self.told("POST", "/v2/models/model/infer", body, {"x-session-id": stream})
        logits = next(output for output in answer["outputs"] if output["name"] == "logits")
        return torch.tensor(logits["data"]).view(logits["shape"])

    def images_in_state(self, stream: str) -> int:
        try:
            return int(self.told("GET", f"/v2/streams/{stream}")["images_in_state"])
        except Refused as refused:
            if refused.status == 404:
                return 0
            raise

    def wait_until_ready(self, seconds: float = 60) -> None:
        ends = time.monotonic() + seconds
        while True:
            try:
                self.told("GET", "/v2/health/ready")
                return
            except (Unreachable, Refused):
                if time.monotonic() > ends:
                    raise
                time.sleep(0.01)
