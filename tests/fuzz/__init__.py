"""Inputs that nobody would write, tried by the thousand: `make fuzz`, and some of them in every run of the tests.

strategies  odd numbers, labels, tables, files, folders, options, model files and states of sessions, for hypothesis
targets     what is done with them, and what must hold
__main__    a long run: how many, from which seed, and what was found
"""
