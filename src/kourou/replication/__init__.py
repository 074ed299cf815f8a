"""One log on several machines.

stream.py       the bytes between master and slave: the original's, and what our own nodes say besides
handshake.py    who is there, in which term, with which secret
primary.py      a master's side: who follows, and how far enough of them are
link.py         one slave, seen from the master
replica.py      a slave's side: follows one master
divergence.py   where two logs part
metadata.py     topics, groups and offsets, which are not in the log
status.py       all of it, to be looked at
ballots.py, election.py, keeping_up.py    who leads
"""
