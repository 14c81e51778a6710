"""Bodies are counted as they come, and given up where they do not come."""

import asyncio

import pytest
from starlette.requests import Request

from holdfast.serving.bodies import AT_A_TIME, Bodies
from holdfast.serving.errors import BadRequestError, BusyError, TooLargeError


def request(chunks):
    """One whose body comes in these chunks, without saying how long it is; None: it breaks off."""
    coming = iter(chunks)

    async def receive():
        chunk = next(coming, b"")
        if chunk is None:
            return {"type": "http.disconnect"}
        await asyncio.sleep(0 if chunk else 5)
        return {"type": "http.request", "body": chunk, "more_body": True}

    return Request({"type": "http", "headers": []}, receive)


def read(bodies, chunks):
    async def whole():
        async with bodies.read(request(chunks)) as body:
            return body

    return asyncio.run(whole())


def test_a_body_without_a_length_is_counted_as_it_comes():
    bodies, came = Bodies(1024), []

    def endless():
        while True:
            came.append(100)
            yield bytes(100)

    with pytest.raises(TooLargeError, match=r"more than 1,024 bytes.*--max-body"):
        read(bodies, endless())
    assert sum(came) == 1100 and bodies.held == 0


@pytest.mark.parametrize(
    ("chunks", "message"), [([b"{"], r"within 0\.05 seconds"), ([b"{", None], "cut short")]
)
def test_a_body_that_does_not_come_is_given_up(chunks, message):
    bodies = Bodies(1024, seconds=0.05)
    with pytest.raises(BadRequestError, match=message):
        read(bodies, chunks)
    assert bodies.held == 0


def test_all_bodies_together_have_a_limit_too():
    bodies = Bodies(1024)
    bodies.held = AT_A_TIME * 1024 - 10
    with pytest.raises(BusyError, match="a little later"):
        read(bodies, [bytes(11)])
    assert bodies.held == AT_A_TIME * 1024 - 10
