"""Programs on top of the library; the command line starts the others, which do not know each other.

cli       the command line, one file per command
shown     candidates as a person reads them
report    a fit as one page to hand round
annotate  pages on which people answer, and where their answers are kept
export    what was learnt, in the forms of other tools
"""
