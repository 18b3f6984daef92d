"""Subscriptions in service: waking workers when streams have something new.

operations     what can be done with subscriptions: create, link, claim, settle
registry       the subscriptions in memory: matched with streams, told of commits
subscription   one of them: its wake, its lease, its retries
index          which subscriptions a path concerns
hints          what other nodes of a cluster say of their streams
survey         where the streams of a pattern end, looked up once at the start
webhooks       requests to the outside, checked, signed and bounded
keyring        what they are signed with
figures        what subscriptions count
"""
