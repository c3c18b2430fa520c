"""The command line: read, call the library, show. No mathematics here.

program     the way in: an error is one line, an interrupt another
commands    the commands by name; each is imported when it is run
interrupts  Ctrl-C, at whatever moment
output      output that cannot be written does not stop the work
console     what the commands share: progress, arguments, writing a folder
findings    what a fit found, in numbers, tables and pictures
demo        the main job on built-in data
embed       texts as features
audit       what is wrong or thin in the data
fit         fit, print a summary, save
fit_folder  the same for comparisons that need not fit in memory
rank        what to recommend
predict     how probable each answer is
export      what was learnt, in the forms of other tools
ask         questions in the terminal
plan        whom to ask what next
update      new answers into a fitted folder
report      one page to hand round
annotate    a page on which people answer
answers     what they answered
bench       how fast every public call is
reproduce   the paper's experiments
"""
