"""Data preparation, under the names that Keras keeps for older programs."""

from kerasish.preprocessing import image as image
from kerasish.preprocessing import sequence as sequence
from kerasish.utils import image_dataset_from_directory as image_dataset_from_directory
from kerasish.utils import text_dataset_from_directory as text_dataset_from_directory
from kerasish.utils import timeseries_dataset_from_array as timeseries_dataset_from_array
