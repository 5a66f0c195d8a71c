"""The page of a run, for those who operate it. Rendered here; one small script brings its sections up to date.

run → board → views, pictures → templates → routes → a browser
"""
