"""The command line: read, call the library, show. No mathematics here."""
