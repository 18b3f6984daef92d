"""History in service: what happens to older data, after every commit.

sealing        from the database into files
compacting     from many files to few
archiving      from files into object storage, and out of the way
publishing     the same where files are nowhere else, and removing what nobody needs
fetching       back from there, once for all who ask
file_task      what sealing and compacting have in common
"""
