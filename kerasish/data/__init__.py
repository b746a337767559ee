"""Data sets for training: sequences in buckets of similar length."""

from kerasish.data.buckets import Buckets as Buckets
from kerasish.data.buckets import best_boundaries as best_boundaries
from kerasish.data.buckets import bucket_by_length as bucket_by_length
