"""A month lived, a year reckoned: records come and go every day; S3T learns weekly, full fine-tuning every night."""
