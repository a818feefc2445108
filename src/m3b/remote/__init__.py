"""Remote folders (S3, Google Cloud Storage, SSH): m3b mirrors them into a local store before anything reads them."""
