"""History in service: what happens to older data, after every commit.

sealing        from the database into files
archiving      from files into object storage, and out of the way
fetching       back from there, once for all who ask
retaining      what a stream need not keep any more
"""
