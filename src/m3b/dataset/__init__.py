"""Reading any data folder: formats, annotations, tables, survey, manifest, proposals, index, audit, privacy."""
