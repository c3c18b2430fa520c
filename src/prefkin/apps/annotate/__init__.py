"""People answer in a browser: each next pair chosen by the model, each answer kept the moment it is given.

tokens        the secrets in links
items         what people look at
history       what one person was asked and answered, from events
store         where events are kept: SQLite or PostgreSQL
knowledge     what is known of people at one moment: a model
conversation  one person's session: the next pair
outlook       how much longer it will take
background    work that nobody waits for
engine        the running project: who is being asked what
learning      groups and prior are learnt again, in another process
result        what a person can be told about themselves
overview      what the organiser sees of everybody
export        answers as others read them
text          Markdown as safe HTML
guard         sizes, rates, origins, headers
project       who is calling, and what they may do
api           the same for programs
pages         the pages
app           the web application
demo          stories and simulated readers
server        links, a port, and the server
"""
