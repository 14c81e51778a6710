"""Which methods fit a model, and what to know before using them."""

import pytest
import torch
from doctor_nets import (
    CLASSES,
    HeadlessNet,
    LayerNormNet,
    Net,
    Stripes,
    normalize,
    only_problem,
    striped,
    textures,
    trained_net,
    values_of,
)
from torch import nn

import holdfast


def no_fit(diagnosis):
    return {name for name, fit in diagnosis.methods.items() if not fit.fits}


def test_every_method_fits_a_batch_norm_net_but_one_that_goes_by_stages():
    diagnosis = holdfast.doctor(Net(), textures(16))
    assert no_fit(diagnosis) == {"aetta"}
    assert "no stages" in diagnosis.methods["aetta"].remarks[0]
    for name, fit in diagnosis.methods.items():
        needs = holdfast.compose(holdfast.methods()[name].example()).needs
        assert any("needs source" in text for text in fit.remarks) == bool(needs)
        assert all(f"needs source {need}" in fit.remarks[0] for need in needs[:1])


def test_a_source_takes_the_remark_away_and_is_not_changed():
    net = Net()
    loader = [(textures(10), torch.arange(10) % CLASSES)]
    source = holdfast.Source.from_loader(net, loader)
    before = set(source.tensors)
    diagnosis = holdfast.doctor(net, textures(8), source=source)
    assert diagnosis.methods["debias"].remarks == ()
    assert "adapt() will first make fisher" in diagnosis.methods["eata"].remarks[0]
    assert no_fit(diagnosis) == {"aetta"}
    assert set(source.tensors) == before


def test_a_source_says_whether_its_labels_are_those_of_the_model():
    net, labels = Stripes(6), torch.arange(120) % 6
    images = striped(labels, 6)
    right = holdfast.Source.from_loader(net, [(images, labels)])
    found = [one for one in holdfast.doctor(net, source=right).findings if "source" in one.text]
    assert [one.level for one in found] == ["good"]
    assert "source's images for what they are" in found[0].text
    mixed = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]
    with pytest.warns(UserWarning, match="The source's labels: The model takes"):
        wrong = holdfast.Source.from_loader(net, [(images, mixed)])
    assert "The source's labels" in only_problem(holdfast.doctor(net, source=wrong))
    # One that holds prototypes alone cannot say it.
    del wrong.tensors["predicted/source"]
    assert not holdfast.doctor(net, source=wrong).problems


def test_labels_of_the_images_are_taken_from_a_list_too():
    values = values_of("0.5")
    net = trained_net(*values)
    images = textures(300)
    with torch.no_grad():
        labels = net(normalize(images, *values)).argmax(1)
    model = holdfast.normalized(net, *values)
    for given in (labels, labels.tolist()):
        found = holdfast.doctor(model, images, labels=given).findings
        assert [one.level for one in found] == ["good"] * 3
        assert "100.0% of 300 images" in found[-1].text


def test_no_default_filter_drops_most_images_however_many_classes_there_are():
    """A cosine of 1/√C to the mean prediction is usual; the published limit is for 1,000."""
    for classes in (2, 10, 1000):
        net = Net()
        net.fc = nn.Linear(net.fc.in_features, classes)
        for name in ("eta", "eata", "rdumb"):
            (fit,) = holdfast.doctor(net, textures(8), method=name).methods.values()
            assert not any("redundancy" in text for text in fit.remarks), (name, classes)
            low = f"{name}(redundancy=0.01)"
            (fit,) = holdfast.doctor(net, textures(8), method=low).methods.values()
            assert any("redundancy=0.01 drops most" in text for text in fit.remarks)


def test_a_source_of_another_model_is_found():
    loader = [(textures(10), torch.arange(10) % CLASSES)]
    source = holdfast.Source.from_loader(Net(), loader)
    diagnosis = holdfast.doctor(Net(), source=source)
    assert "belongs to another model" in only_problem(diagnosis)
    assert "needs source prototypes" in diagnosis.methods["debias"].remarks[0]


def test_batch_norm_and_a_batch_of_one_need_a_window():
    fits = holdfast.doctor(Net(), textures(16), batch_size=1).methods
    assert fits["frozen"].fits
    for name in ("bn", "tent", "eata", "debias"):
        assert not fits[name].fits
        assert "needs window=W" in fits[name].remarks[0]


def test_small_batches_are_noisy():
    for size, noisy in ((2, True), (7, True), (8, False)):
        fits = holdfast.doctor(Net(), batch_size=size).methods
        assert fits["tent"].fits and fits["frozen"].remarks == ()
        assert any("noisy" in remark for remark in fits["tent"].remarks) == noisy


@pytest.mark.parametrize(
    "net", [Net(lambda channels: nn.GroupNorm(2, channels)), LayerNormNet()], ids=type
)
def test_without_batch_norm_a_batch_of_one_is_fine_and_bn_does_nothing(net):
    fits = holdfast.doctor(net, textures(4), batch_size=1).methods
    assert fits["tent"].fits and fits["tent"].remarks == ()
    assert not fits["bn"].fits
    assert "nothing would change" in fits["bn"].remarks[0]


def test_without_norm_layers_it_says_what_to_do():
    diagnosis = holdfast.doctor(Net(lambda channels: nn.Identity()), textures(4))
    assert diagnosis.norm_layers == {}
    assert not diagnosis.methods["tent"].fits
    assert "select=all" in diagnosis.methods["tent"].remarks[0]
    assert diagnosis.methods["frozen"].fits


def test_a_net_that_gives_nan_fits_nothing():
    net = Net()
    nn.init.constant_(net.fc.bias, float("nan"))
    fits = holdfast.doctor(net, textures(4)).methods
    assert not fits["tent"].fits and "NaN" in fits["tent"].remarks[0]


def test_a_net_that_cannot_learn_fits_what_does_not_learn():
    class InPlace(Net):
        def forward(self, images):
            x = self.norm1(self.conv1(images)).exp()
            x.add_(1)  # autograd needs the old value
            return self.fc(self.norm2(self.conv2(x)).mean((2, 3)))

    fits = holdfast.doctor(InPlace(), textures(4)).methods
    assert fits["bn"].fits
    assert not fits["tent"].fits and "inplace operation" in fits["tent"].remarks[0]


def test_steady_is_recommended_where_there_is_batch_norm():
    def recommended(net, **options):
        return [one for one in holdfast.doctor(net, **options).findings if "+steady" in one.text]

    (found,) = recommended(Net(), images=textures(16))
    assert found.level == "good" and found.text.startswith("eata+debias+steady")
    assert (
        holdfast.doctor(Net(), textures(16), method="eata+debias+steady")
        .methods["eata+debias+steady"]
        .fits
    )
    (found,) = recommended(HeadlessNet())
    assert found.text.startswith("tent+steady")
    assert recommended(LayerNormNet()) == []


def test_what_health_is_calibrated_on_is_left_alone():
    """It takes long, and says nothing of whether a method fits."""
    net = Net()
    labels = torch.arange(10) % CLASSES
    drifted = [(textures(10), labels, "clean"), (textures(10) / 2, labels, "fog-1")]
    source = holdfast.Source.from_loader(net, [(textures(10), labels)], drifted=drifted)
    before = set(source.tensors)
    fit = holdfast.doctor(net, textures(8), source=source).methods["tent"]
    assert fit.fits and fit.remarks == ()
    assert set(source.tensors) == before and source.drifted is drifted
