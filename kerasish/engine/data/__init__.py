"""Data adapters: what the user passes to `fit` becomes numbered epochs of NumPy batches."""

from kerasish.engine.data.arrays import ArrayData as ArrayData
from kerasish.engine.data.batch import Batch as Batch
from kerasish.engine.data.batch import pack_x_y_sample_weight as pack_x_y_sample_weight
from kerasish.engine.data.batch import unpack_x_y_sample_weight as unpack_x_y_sample_weight
from kerasish.engine.data.data import Data as Data
from kerasish.engine.data.data import Epoch as Epoch
from kerasish.engine.data.make import make_data as make_data
from kerasish.engine.data.py_dataset import PyDataset as PyDataset
from kerasish.engine.data.source import DataSource as DataSource
from kerasish.engine.data.split import train_validation_split as train_validation_split
