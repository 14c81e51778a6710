"""A server with streams that were never run, for a look at its page:
python tests/helpers/watched_page.py PORT STREAMS"""

import random
import sys
import tempfile
import threading
import time
from dataclasses import replace

from plain_fleet import PlainFleet

from holdfast.engine.health import ADVICE, Health
from holdfast.serving.front import Front, Limits, Served
from holdfast.serving.listening import Listener, open_socket
from holdfast.serving.service import Service, ServiceOptions
from holdfast.serving.watching import Seen

HOSTILE = "<img src=x onerror=alert(1)>"
SERVED = Served("net", "0f1e2d3c4b5a", "eata+debias+steady", side=2, classes=2)


class QuietListener(Listener):
    """In a thread, where no signal comes."""

    def capture_signals(self):
        return threading.Lock()


class Site:
    """`with Site(folder, 20) as site: site.address`. Some streams ring, one is refused."""

    def __init__(self, folder, streams, token=None, port=0):
        self.service = Service(PlainFleet(folder), ServiceOptions(deadline=0.0))
        self.at = open_socket("127.0.0.1", port)
        self.address = f"http://127.0.0.1:{self.at.getsockname()[1]}/"
        front = Front(self.service, SERVED, Limits(), token)
        self.listener = QuietListener(front, *self.at.getsockname()[:2])
        self.show(streams)

    def show(self, streams):
        dice, now = random.Random(streams), time.monotonic()
        for index in range(streams):
            health = Health(
                state=dice.choice(("stable", "adapting")),
                accuracy=dice.uniform(0.5, 0.9),
                entropy=dice.uniform(0.1, 2),
                spread=dice.uniform(0.5, 1),
                drift=dice.uniform(0, 0.6),
            )
            if index % 9 == 1:
                advice = ADVICE["collapsed"]
                health = replace(health, state="collapsed", alarm=True, advice=advice, spread=0.02)
            seen = Seen(images=dice.randrange(1, 10**5), at=now - dice.expovariate(0.02))
            seen.health = health
            self.service.watched._seen[f"camera-{index:03}"] = seen
        self.service.tally.images = sum(seen.images for seen in self.service.watched.all().values())
        self.service.tally.answered(380)
        if streams > 1:
            text = f"The state of {HOSTILE} was damaged and is set aside: reset begins it anew."
            self.service.keeper.troubles[HOSTILE] = text

    def __enter__(self):
        self.thread = threading.Thread(target=self.listener.run, args=([self.at],))
        self.thread.start()
        while not self.listener.started:
            time.sleep(0.005)
        return self

    def __exit__(self, *_):
        self.listener.should_exit = True
        self.thread.join()
        self.service.drain()


if __name__ == "__main__":
    with Site(tempfile.mkdtemp(), int(sys.argv[2]), port=int(sys.argv[1])) as site:
        print(site.address, flush=True)
        site.thread.join()
