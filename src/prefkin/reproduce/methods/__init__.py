"""A small file for methods that are alike. To add one: a decorated function in a file here; nothing else."""

import importlib
import pkgutil

for _file in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_file.name}")
