"""Programs on top of the library; none of them knows another.

cli  the command line, one file per command
"""
