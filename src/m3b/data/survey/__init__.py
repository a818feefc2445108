"""A survey of a data folder that nobody prepared: what is there, what it holds, and what belongs together.

`survey(root)` looks once, within limits, and states facts (`m3b.data.survey.facts`, `table_facts`, `relations`); it
decides nothing. Nothing here knows a particular data set, and nothing that a file holds can make it fail.
"""
