"""Downloads a model from the Hugging Face hub.

Files are kept in the cache of the `huggingface_hub` library, so a second import does not download
them again.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mtkit.base.errors import MtkitError, reason_of
from mtkit.base.hub_client import quiet_client, the_hub, transport_errors
from mtkit.convert.transformers_folder import CONFIG, OTHER_FILES, PICKLED, SAFETENSORS

log = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


class Downloaded(NamedTuple):
    """A downloaded model: its folder, and the commit on the hub."""

    folder: Path
    commit: str


def is_hub_name(text: str) -> bool:
    """Whether it can be the name of a model, as in owner/model."""
    return _NAME.fullmatch(text) is not None


def download(name: str, revision: str | None) -> Downloaded:
    """Download the files that an import needs; weights as safetensors if there are such.

    Raises:
        MtkitError: if the hub cannot be reached, or has no such model.
    """
    from huggingface_hub import HfApi, snapshot_download

    with _explained(name, revision):
        info = HfApi().model_info(name, revision=revision)
        files = {file.rfilename for file in info.siblings or []}
        weights = next((file for file in (SAFETENSORS, PICKLED) if file in files), None)
        if CONFIG not in files or weights is None:
            missing = CONFIG if CONFIG not in files else f"{SAFETENSORS} or {PICKLED}"
            raise MtkitError(
                f"{name}: has no {missing} on the hub; mtkit import reads MarianMT models"
            )
        log.info("downloading %s (%s)", name, weights)
        folder = snapshot_download(name, revision=info.sha, allow_patterns=[weights, *OTHER_FILES])
        return Downloaded(Path(folder), info.sha or "")


@contextlib.contextmanager
def _explained(name: str, revision: str | None) -> Iterator[None]:
    """Without bars and messages of the library; its errors are errors of the user's."""
    from huggingface_hub.errors import HfHubHTTPError, RevisionNotFoundError

    hub = the_hub()
    not_here = f"{name}: is not a folder on this machine, and"
    try:
        with quiet_client():
            yield
    except RevisionNotFoundError as error:
        raise MtkitError(f"--revision {revision}: {name} has no such revision on {hub}") from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        if status in (401, 403, 404):
            raise MtkitError(
                f"{not_here} {hub} has no model {name}, or it is private (HTTP {status}): check "
                "the name, or set HF_TOKEN to a token that may read it"
            ) from error
        raise MtkitError(
            f"{hub} answered with HTTP {status} for {name}; try again later"
        ) from error
    except MtkitError:
        raise
    except (OSError, *transport_errors(), RuntimeError, ValueError) as error:
        raise MtkitError(
            f"{not_here} it cannot be downloaded from {hub}: {reason_of(error, most=200)}; check "
            "the name, try again, or download its files and give their folder as SOURCE"
        ) from error
