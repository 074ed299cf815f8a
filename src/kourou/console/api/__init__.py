"""The HTTP interface, for people without a client: every deed, and receiving with acknowledgement.

routes.py     which path leads where, who may, and what becomes of an error
plain.py      results as JSON knows them
receive.py    long polls, streams of events, and their receipts
openapi.py    all of it described, for tools and for the page
"""
