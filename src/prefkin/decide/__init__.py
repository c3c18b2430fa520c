"""What to recommend, and what to ask next.

belief     where a preference is thought to lie; every decision is made from it
policy     the pessimistic value and its best policy, with a certificate
rules      which pair to ask about next, one file per rule
refit      the estimate after each answer
listeners  what an answer does to what is known: the paper's way and the posterior's
forecast   how many more answers it takes, and when there are enough
session    a conversation with one user
"""
