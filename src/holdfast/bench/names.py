"""Short names of domains, as the headings of the paper's tables have them."""

SHORT = {
    "gaussian_noise": "gauss",
    "shot_noise": "shot",
    "impulse_noise": "impulse",
    "defocus_blur": "defocus",
    "glass_blur": "glass",
    "motion_blur": "motion",
    "zoom_blur": "zoom",
    "brightness": "bright",
    "elastic_transform": "elastic",
    "jpeg_compression": "jpeg",
}


def short(domain: str) -> str:
    """`gauss` for gaussian_noise; any other name as it is."""
    return SHORT.get(domain, domain)
