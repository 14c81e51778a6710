import pytest

from holdfast.engine.abreast import Abreast


@pytest.fixture
def groups(monkeypatch):
    """How many streams were served together, each time that some were."""
    seen = []
    serve = Abreast.serve_together

    def watched(self, streams):
        found = serve(self, streams)
        seen.append(len(found))
        return found

    monkeypatch.setattr(Abreast, "serve_together", watched)
    return seen
