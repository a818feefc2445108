"""`m3b view`: a local server with pages of runs, for a browser on this machine."""
