"""Training of medical-imaging models: what all recipes share."""
