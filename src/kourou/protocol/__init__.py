"""Bytes and their meaning: frames, commands, bodies, records. No I/O, no clock, no logging.

Everything here is a plain function or value over bytes. What cannot be understood raises ProtocolError and
nothing else, however hostile; what is understood keeps RocketMQ's nouns under our names.
"""
