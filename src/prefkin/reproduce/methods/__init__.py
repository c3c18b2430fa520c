"""A small file for methods that are alike. To add one: a decorated function in a file here; nothing else.

alone_and_pooled  nobody, everybody, or a true group
neighbour         the nearest users
kmeans            KMeans on own estimates
density           DBSCAN and HDBSCAN on own estimates
pdc               one pass by online mirror descent
off_c2pl          the paper's algorithm, its threshold set in four ways
library           models of the library as they are shipped
"""

import importlib
import pkgutil

for _file in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_file.name}")
