"""What to recommend, and what to ask next.

policy    the pessimistic value and its best policy, with a certificate
queries   which pair to ask about next
forecast  how many more answers it takes, and when there are enough
session   a conversation with one user
"""
