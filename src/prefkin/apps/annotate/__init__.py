"""People answer in a browser: each next pair chosen by the model, each answer kept the moment it is given.

tokens   the secrets in links
items    what people look at
history  what one person was asked and answered, from events
store    where events are kept: SQLite or PostgreSQL
"""
