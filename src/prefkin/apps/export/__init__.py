"""What was learnt, in the form in which others go on with it; one file for each of them.

whose        whose preferences: one user's, each group's, or everybody's
encoder      what the features were made by
reward_head  a linear head for a language model or a sentence encoder
trl          a preference set for each group, for TRL's trainers
questions    what to ask next, as tasks for Label Studio and Argilla
"""
