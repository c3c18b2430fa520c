"""How work is carried out: on how many threads, with which BLAS, and who hears about it.

executor  work on many items, each computed by one thread alone
cluster   processes and machines: Dask
blas      one BLAS thread, so that sums have one order
progress  telling whoever wants to know
usage     memory and CPU time, where the system tells
"""
