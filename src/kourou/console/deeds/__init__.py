"""Everything one can ask of the console, each once: in forms of pages, and as operations of the interface.

deed.py        what a deed is: name, role, fields, what it does, and the same for the command line
topics.py groups.py messages.py letters.py waiting.py brokers.py accounts.py      the deeds, by noun
"""
