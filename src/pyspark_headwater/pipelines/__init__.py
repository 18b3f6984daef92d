"""Pipelines: streams into tables and back.

`transforms` has what happens to the data, as functions from DataFrame to DataFrame; `folding` the
rules of the State Protocol; `delta` how files become a table. `jobs` puts them together, `running`
starts, watches and resumes them, and `__main__` is what `spark-submit` runs.
"""
