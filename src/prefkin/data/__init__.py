"""What people answered, and what could be shown to them.

arrays       names for the arrays that pass between functions
checks       arrays, answers and labels, checked where they enter
answers      0 and 1, or words that name a side
items        which rows are about the same thing
triangles    which rows are about the same topic, by their differences alone
choices      rankings and choices among several as pairs
ratings      ratings as pairs, and factors of items that nobody described
rows         comparisons sorted by user
comparisons  `Comparisons`: who saw which pair and what they chose
dependence   rows that were made from rankings, and what they count
candidates   `Candidates`: the actions available in each context
described    features in the order of their names
digest       which data it was, and numbers that are well mixed
storage      files written as a whole or not at all; labels as JSON
json_lines   JSON lines, quickly, and as they are
exports      what annotation tools take in, and export
formats      files, folders and frames as columns: Parquet, CSV, JSON, NPZ
columns      a table's columns under our names, whatever their own are
tables       comparisons and candidates out of tables
votes        comparisons with the texts they are about
shards       comparisons larger than memory, a shard of users at a time
buckets      rows of a user brought together, from Parquet files in any order
folds        which rows are held out, and which users are asked
synthetic    people with known truth
embedding    texts as features, each distinct one once, kept by content
"""
