"""Consumer groups in service: who waits, who gets what, and what of that is stored.

operations     what can be done with groups: create, change, seek, settle, look
registry       the groups in memory, by stream and name
group          one group: its members, and who gets what
acks           acknowledgements that are stored together
storing        the state of a group, and what of it is stored
members        what a group knows of a worker, and gives to it
messages       reading the messages that are handed out
dead_letters   messages that were given up, into dead-letter streams
figures        what groups count
"""
