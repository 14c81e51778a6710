"""Asks an app without a network, one request after the other."""

import asyncio
from functools import partialmethod

import httpx


class Client:
    def __init__(self, app, base_url):
        self.app, self.base_url = app, base_url

    def connect(self):
        """For those who ask several things at once: `async with`."""
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url=self.base_url)

    def request(self, method, path, **options):
        async def ask():
            async with self.connect() as client:
                return await client.request(method, path, **options)

        return asyncio.run(ask())

    get = partialmethod(request, "GET")
    post = partialmethod(request, "POST")
    put = partialmethod(request, "PUT")
    delete = partialmethod(request, "DELETE")
