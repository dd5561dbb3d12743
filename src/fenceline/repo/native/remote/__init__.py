"""The object port on S3, Google Cloud Storage and Azure: where it lies, how it is asked, what its errors mean."""
