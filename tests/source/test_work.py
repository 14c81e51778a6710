from toys import source_batches, toy_net

import holdfast


def test_work_is_named_by_the_images_that_it_is_on_in_their_order():
    net = toy_net()
    network = holdfast.adapt(net, "tent").network
    batches = source_batches()

    def key(batches, *, limit=None, images=28, text="x"):
        source = holdfast.Source.from_loader(net, batches, limit=limit)
        return source.work(text, network, images).key

    other = [*batches[:-1], (batches[-1][0].flip(3) * 0.9, batches[-1][1])]
    relabelled = [(batches[0][0], batches[0][1].roll(1)), *batches[1:]]
    assert key(batches) == key(list(batches))
    assert len({key(each) for each in (batches, batches[::-1], other, relabelled)}) == 4
    # Those beyond the limit count where they are worked on, and only there.
    size = len(batches[0][0])
    count = sum(len(images) for images, _ in batches)
    for images, same in ((size, True), (count, False)):
        assert (
            key(batches, limit=size, images=images) == key(other, limit=size, images=images)
        ) == same
