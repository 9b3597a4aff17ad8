"""Start-up hook of the Python processes that a registered script starts.

`paceline.register` puts this folder, which is not a package, first in ``PYTHONPATH``. Python
imports a module named `sitecustomize` when it starts. paceline is imported only if the process
imports MDAnalysis.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType

#: Packages whose import triggers the registration.
_PACKAGES = ("MDAnalysis", "paceline.mdanalysis")


class _AfterImport(importlib.abc.MetaPathFinder):
    """Registers paceline in this process after one of the packages has been imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find one of the packages; its loader registers paceline after the import."""
        if name not in _PACKAGES:
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None and os.environ.get("PACELINE_SCRIPT"):
            execute = spec.loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                _register()

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


def _register() -> None:
    try:
        from paceline.mdanalysis.registration import register_here
    except ImportError:
        return  # this Python lacks paceline, or has a version without the hook
    register_here()


def _import_next() -> None:
    """Import the module `sitecustomize` that Python would have imported without this folder."""
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != folder]
    hook = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = hook


if __name__ == "sitecustomize":
    _import_next()
    sys.meta_path.insert(0, _AfterImport())
