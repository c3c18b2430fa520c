"""What to recommend, and what to ask next.

belief      where a preference is thought to lie; every decision is made from it
population  the same for somebody who may belong to any of several groups
policy      the pessimistic value and its best policy, with a certificate
rules       which pair to ask about next, one file per rule
refit       the estimate after each answer
listeners   what an answer does to what is known: the paper's way, the posterior's, and of a newcomer
forecast    how many more answers it takes, and when there are enough
plan        whom to ask what: questions spread over all people together
states      sessions on disk
session     a conversation with one user
"""
