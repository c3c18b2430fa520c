"""One small file per method. To add one: a file here with one decorated function; nothing else."""

import importlib
import pkgutil

for _file in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_file.name}")
