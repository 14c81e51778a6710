"""Every registered method, and every composition that follows from the registry."""

import holdfast


def _all() -> list[str]:
    found = holdfast.methods()
    plugins = [name for name, method in found.items() if method.plugin]
    learners = [name for name, method in found.items() if method.learns and not method.plugin]
    together = "+".join(plugins)
    return [
        *found,
        together,
        *(f"{host}+{plugin}" for host in learners for plugin in plugins),
        *(f"{host}+{together}" for host in learners),
    ]


COMPOSITIONS = _all()
ON_A_HOST = [
    spec for spec in COMPOSITIONS if not holdfast.compose(spec).host.plugin and "+" in spec
]


def without_weight(spec: str) -> str:
    """The same with every weight of every plug-in set to 0."""
    host, *plugins = spec.split("+")
    return "+".join([host, *(f"{name}({_zeros(name)})" for name in plugins)])


def _zeros(plugin: str) -> str:
    weights = [
        one.name
        for one in holdfast.methods()[plugin].settings()
        if one.name.startswith(("lambda", "weight"))
    ]
    assert weights, f"{plugin} has no setting that is a weight"
    return ",".join(f"{name}=0" for name in weights)


def uses_batch_statistics(spec: str) -> bool:
    return holdfast.compose(spec).host.selection().statistics == "batch"


def trains_norms(spec: str) -> bool:
    return holdfast.compose(spec).host.selection().what == "norm"


def may_abstain(spec: str) -> bool:
    """Whether there are batches on which it takes no step."""
    return holdfast.compose(spec).backwards[0] == 0
