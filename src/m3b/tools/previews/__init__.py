"""One module a kind of file, each with `preview(path, phi) -> lines`; imported only when such a file is met."""
