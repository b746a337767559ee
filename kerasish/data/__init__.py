"""Data for training: `Dataset` with the verbs of `tf.data`; sequences in buckets."""

from kerasish.data.buckets import Buckets as Buckets
from kerasish.data.buckets import bucket_by_length as bucket_by_length
from kerasish.data.dataset import Dataset as Dataset
from kerasish.data.elements import DataArray as DataArray
from kerasish.data.elements import TensorSpec as TensorSpec
from kerasish.data.node import AUTOTUNE as AUTOTUNE
from kerasish.data.node import INFINITE_CARDINALITY as INFINITE_CARDINALITY
from kerasish.data.node import UNKNOWN_CARDINALITY as UNKNOWN_CARDINALITY
from kerasish.data.pipeline import DatasetIterator as DatasetIterator
from kerasish.engine.data.ladder import best_boundaries as best_boundaries
from kerasish.engine.data.ragged import Ragged as Ragged
