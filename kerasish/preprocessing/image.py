"""Pictures, under the names that Keras keeps for older programs."""

from kerasish.preprocessing.files import DataFrameIterator as DataFrameIterator
from kerasish.preprocessing.files import DirectoryIterator as DirectoryIterator
from kerasish.preprocessing.generator import ImageDataGenerator as ImageDataGenerator
from kerasish.preprocessing.iterators import Iterator as Iterator
from kerasish.preprocessing.iterators import NumpyArrayIterator as NumpyArrayIterator
from kerasish.preprocessing.transforms import apply_affine_transform as apply_affine_transform
from kerasish.preprocessing.transforms import apply_brightness_shift as apply_brightness_shift
from kerasish.preprocessing.transforms import apply_channel_shift as apply_channel_shift
from kerasish.preprocessing.transforms import random_brightness as random_brightness
from kerasish.preprocessing.transforms import random_channel_shift as random_channel_shift
from kerasish.preprocessing.transforms import random_rotation as random_rotation
from kerasish.preprocessing.transforms import random_shear as random_shear
from kerasish.preprocessing.transforms import random_shift as random_shift
from kerasish.preprocessing.transforms import random_zoom as random_zoom
from kerasish.utils.images import array_to_img as array_to_img
from kerasish.utils.images import img_to_array as img_to_array
from kerasish.utils.images import load_img as load_img
from kerasish.utils.images import save_img as save_img
from kerasish.utils.images import smart_resize as smart_resize
