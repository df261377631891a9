"""Whether folders for jobs can be made: a full or read-only disk has jobs wait, and ends nothing."""

import logging
import os
import shutil
from pathlib import Path

from pesto.core.errors import FileError
from pesto.core.executing.backoff import Backoff
from pesto.core.files.disk import make_folder

_LOG = logging.getLogger(__name__)


class JobRoom:
    """Tries the folder of all jobs again, with pauses, after a folder could not be made there."""

    def __init__(self, folder: Path) -> None:
        """`folder`: of all jobs."""
        self._folder, self._backoff = folder, Backoff()
        self.trouble = ""
        """Why no folder can be made, without its name, for everybody; empty while one can."""

    def there(self) -> bool:
        """Return whether folders can be made, as far as is known; after a failure one is tried now and then."""
        if not self.trouble:
            return True
        return not self._backoff.left_s and self.tried()

    def tried(self) -> bool:
        """Return whether a folder like a job's can be made now."""
        probe = self._folder / f".probe-{os.urandom(8).hex()}"
        try:
            make_folder(probe / "1")
        except FileError as error:
            self._failed(error)
            return False
        finally:
            shutil.rmtree(probe, ignore_errors=True)
        if self.trouble:
            _LOG.warning("folders for jobs can be made again")
        self.trouble = ""
        self._backoff.worked()
        return True

    def _failed(self, error: FileError) -> None:
        if not self.trouble:
            _LOG.error("%s; jobs wait until folders can be made", error)
        reason = getattr(error.__cause__, "strerror", None) or "the disk refuses it"
        self.trouble = f"no folder for a job can be made: {reason.lower()}"
        self._backoff.failed()
