"""Work distribution in service: groups hand out messages, transactions settle and publish.

groups         the groups of all streams: found, changed and used
group          one group: who waits, who has what
messages       reading the messages that are handed out
burial         messages that were given up, into dead-letter streams
transactions   acknowledge and publish in one commit
"""
