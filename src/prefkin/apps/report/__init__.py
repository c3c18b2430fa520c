"""A fit as one page to hand round: self-contained, without network, light and dark, fit to be printed.

facts  what the page says: the map, groups in words, what is thin, what to ask next
page   how it looks
"""
