"""The rules of the protocol, and nothing else.

Everything in this package is pure: no event loop, no clock, no files, no randomness. Time and
random numbers are passed in, decisions are returned as values. Each module opens with its rules in
prose and then states them once as code; the layers above only sequence, store and translate.
"""
