"""The papers whose protocols the streams follow, by the short names that their settings cite."""

PAPERS = {
    "debias": "Chung, Hwang, Yoo, Kwak, Mitigating the bias in the model for continual test-time "
    "adaptation, arXiv 2403.01344",
    "CoTTA": "Wang et al. 2022, Continual test-time domain adaptation, arXiv 2203.13591",
    "RMT": "Döbler et al. 2023, Robust mean teacher for continual and gradual test-time "
    "adaptation, arXiv 2211.13081",
    "SAR": "Niu et al. 2023, Towards stable test-time adaptation in dynamic wild world, "
    "arXiv 2302.12400",
    "RoTTA": "Yuan et al. 2023, Robust test-time adaptation in dynamic scenarios, arXiv 2303.13899",
    "NOTE": "Gong et al. 2022, NOTE: Robust continual test-time adaptation against temporal "
    "correlation, arXiv 2208.05117",
    "PeTTA": "Hoang et al. 2024, Persistent test-time adaptation in recurring testing scenarios, "
    "arXiv 2311.18193",
    "SoTTA": "Gong et al. 2023, SoTTA: Robust test-time adaptation on noisy data streams, "
    "arXiv 2310.10074",
    "CCC": "Press et al. 2023, RDumb: A simple approach that questions our progress in continual "
    "test-time adaptation, arXiv 2306.05401",
    "Alfarra et al.": "Alfarra et al. 2024, Evaluation of test-time adaptation under computational "
    "time constraints, arXiv 2304.04795",
}
