"""History in service: what happens to older data, behind every commit.

sealing        from the database into files
archiving      from files into object storage, and out of the way
fetching       back from there, once for everyone who asks
retaining      what a stream need not keep any more
"""
