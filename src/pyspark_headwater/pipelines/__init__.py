"""Pipelines: streams into tables and back.

`transforms` has the data transformations, as functions from DataFrame to DataFrame; `folding` the
rules of the State Protocol; `delta` turns files into a table. `jobs` combines them, `running`
starts, watches and resumes them, and `__main__` is what `spark-submit` runs.
"""
