"""Adapt a model of your own, in ten lines. Run it: python examples/own_model.py

Here the model and the images are those of the embedded benchmark; put your own in their place.
"""

import holdfast
from holdfast.data import glyphs

# Yours: a trained classifier, some labelled training batches, and images that keep coming.
model = glyphs.model()
train_loader = glyphs.source_loader(2500)
stream = glyphs.benchmark()["fog"].images(range(640)).split(64)

# The ten lines.
source = holdfast.Source.from_loader(model, train_loader)  # once, before deployment
adapter = holdfast.adapt(model, "eata+debias+steady", source=source)
source.save("source.safetensors")  # with what this method has asked of it
for images in stream:
    labels = adapter(images).argmax(1)  # predicts, and adapts
    print(f"batch {adapter.last.batch}: {adapter.last.reliable} of {len(labels)} images reliable")
adapter.save("adapter.safetensors")
adapter = holdfast.load("adapter.safetensors", model)  # another day, goes on where it was
plain = adapter.frozen()  # a plain module with what was learnt, for export
print(plain(images[:1]).argmax(1))
