from holdfast.engine.fallback import Fallback


def test_however_often_it_returned_it_returns_again():
    fallback = Fallback()
    for expected in (8, 16, 32, 64, 128, 256, 512, 512, 512):
        fallback.start()
        assert [fallback(True) for _ in range(expected)] == [False] * (expected - 1) + [True]
