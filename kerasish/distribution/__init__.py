"""Data-parallel training on several processes and machines: Keras's `distribution`, on MPI.

    import kerasish as keras

    keras.distribution.initialize()
    keras.distribution.set_distribution(keras.distribution.DataParallel())

and `mpiexec -n 4 python train.py`. Without a launcher the same program is one process. See the
guide `docs/guides/distribution.md`.
"""

from kerasish.distribution.mesh import DeviceMesh as DeviceMesh
from kerasish.distribution.mesh import LayoutMap as LayoutMap
from kerasish.distribution.mesh import TensorLayout as TensorLayout
from kerasish.distribution.parallel import DataParallel as DataParallel
from kerasish.distribution.parallel import Distribution as Distribution
from kerasish.distribution.parallel import ModelParallel as ModelParallel
from kerasish.distribution.parallel import distribute_tensor as distribute_tensor
from kerasish.distribution.parallel import distribution as distribution
from kerasish.distribution.parallel import set_distribution as set_distribution
from kerasish.distribution.setup import get_device_count as get_device_count
from kerasish.distribution.setup import initialize as initialize
from kerasish.distribution.setup import list_devices as list_devices
