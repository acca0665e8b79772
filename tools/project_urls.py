"""[project.urls] of the package: pages below FINEGEMM_HOMEPAGE, where who publishes has the repository.

The sources name no address, since none of them is the only one; a package that is built without it has no addresses.
"""

import os
import re

PAGES = {
    "Homepage": "",
    "Documentation": "/blob/main/docs/README.md",
    "Changelog": "/blob/main/CHANGELOG.md",
    "Issues": "/issues",
    "Source": "",
}


def urls(homepage: str) -> dict[str, str]:
    """Label to address, as the package's metadata have them; none of no homepage."""
    if not homepage:
        return {}
    if not re.fullmatch(r"https://[^\s/]+\.[^\s/]+(/[^\s/]+)*/?", homepage):
        raise SystemExit(
            f"FINEGEMM_HOMEPAGE: is '{homepage}', must be the https address of the repository; leave it unset for none"
        )
    return {label: homepage.rstrip("/") + page for label, page in PAGES.items()}


def dynamic_metadata(field: str, settings: dict[str, object]) -> dict[str, str]:
    """What scikit-build-core asks for."""
    if field != "urls" or settings:
        raise SystemExit(f"pyproject.toml: asks for '{field}' with {settings}, must be 'urls' without settings")
    return urls(os.environ.get("FINEGEMM_HOMEPAGE", ""))
