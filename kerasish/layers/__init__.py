"""Layers, one family a file."""

from typing import TYPE_CHECKING, Any

from kerasish import registry
from kerasish.engine import Input as Input
from kerasish.engine import InputLayer as InputLayer
from kerasish.engine import InputSpec as InputSpec
from kerasish.engine import Layer as Layer
from kerasish.first_use import imports_on_first_use
from kerasish.identifiers import deserialize_of
from kerasish.tracebacks import hides_frames
from kerasish.typing import Config
from kerasish.unsupported import explain

if TYPE_CHECKING:
    from kerasish.engine.layer.layer import SomeLayer

with imports_on_first_use(__name__, explain(__name__)) as _PLACES:
    from kerasish.layers.activation import ELU as ELU
    from kerasish.layers.activation import Activation as Activation
    from kerasish.layers.activation import LeakyReLU as LeakyReLU
    from kerasish.layers.activation import PReLU as PReLU
    from kerasish.layers.activation import ReLU as ReLU
    from kerasish.layers.activation import Softmax as Softmax
    from kerasish.layers.attention import GroupQueryAttention as GroupQueryAttention
    from kerasish.layers.attention import MultiHeadAttention as MultiHeadAttention
    from kerasish.layers.augmentation.color import RandomBrightness as RandomBrightness
    from kerasish.layers.augmentation.color import (
        RandomColorDegeneration as RandomColorDegeneration,
    )
    from kerasish.layers.augmentation.color import RandomColorJitter as RandomColorJitter
    from kerasish.layers.augmentation.color import RandomContrast as RandomContrast
    from kerasish.layers.augmentation.color import RandomGrayscale as RandomGrayscale
    from kerasish.layers.augmentation.color import RandomHue as RandomHue
    from kerasish.layers.augmentation.color import RandomInvert as RandomInvert
    from kerasish.layers.augmentation.color import RandomPosterization as RandomPosterization
    from kerasish.layers.augmentation.color import RandomSaturation as RandomSaturation
    from kerasish.layers.augmentation.color import Solarization as Solarization
    from kerasish.layers.augmentation.filter import RandomGaussianBlur as RandomGaussianBlur
    from kerasish.layers.augmentation.filter import RandomSharpness as RandomSharpness
    from kerasish.layers.augmentation.frame import CenterCrop as CenterCrop
    from kerasish.layers.augmentation.frame import MaxNumBoundingBoxes as MaxNumBoundingBoxes
    from kerasish.layers.augmentation.frame import RandomCrop as RandomCrop
    from kerasish.layers.augmentation.frame import Resizing as Resizing
    from kerasish.layers.augmentation.geometry import RandomFlip as RandomFlip
    from kerasish.layers.augmentation.geometry import RandomRotation as RandomRotation
    from kerasish.layers.augmentation.geometry import RandomShear as RandomShear
    from kerasish.layers.augmentation.geometry import RandomTranslation as RandomTranslation
    from kerasish.layers.augmentation.geometry import RandomZoom as RandomZoom
    from kerasish.layers.augmentation.histogram import AutoContrast as AutoContrast
    from kerasish.layers.augmentation.histogram import (  # fmt: skip
        ContrastLimitedAdaptiveHistogramEqualization as ContrastLimitedAdaptiveHistogramEqualization,  # noqa: E501
    )
    from kerasish.layers.augmentation.histogram import Equalization as Equalization
    from kerasish.layers.augmentation.mixing import CutMix as CutMix
    from kerasish.layers.augmentation.mixing import MixUp as MixUp
    from kerasish.layers.augmentation.mixing import RandomErasing as RandomErasing
    from kerasish.layers.augmentation.policy import AugMix as AugMix
    from kerasish.layers.augmentation.policy import Pipeline as Pipeline
    from kerasish.layers.augmentation.policy import RandAugment as RandAugment
    from kerasish.layers.augmentation.warp import RandomElasticTransform as RandomElasticTransform
    from kerasish.layers.augmentation.warp import RandomPerspective as RandomPerspective
    from kerasish.layers.convolutional import Conv1D as Conv1D
    from kerasish.layers.convolutional import Conv1D as Convolution1D
    from kerasish.layers.convolutional import Conv2D as Conv2D
    from kerasish.layers.convolutional import Conv2D as Convolution2D
    from kerasish.layers.convolutional import Conv3D as Conv3D
    from kerasish.layers.convolutional import Conv3D as Convolution3D
    from kerasish.layers.core import Dense as Dense
    from kerasish.layers.core import Embedding as Embedding
    from kerasish.layers.core import Identity as Identity
    from kerasish.layers.core import Lambda as Lambda
    from kerasish.layers.core import Masking as Masking
    from kerasish.layers.crf import CRF as CRF
    from kerasish.layers.depthwise import DepthwiseConv1D as DepthwiseConv1D
    from kerasish.layers.depthwise import DepthwiseConv2D as DepthwiseConv2D
    from kerasish.layers.depthwise import SeparableConv1D as SeparableConv1D
    from kerasish.layers.depthwise import SeparableConv1D as SeparableConvolution1D
    from kerasish.layers.depthwise import SeparableConv2D as SeparableConv2D
    from kerasish.layers.depthwise import SeparableConv2D as SeparableConvolution2D
    from kerasish.layers.dot_attention import AdditiveAttention as AdditiveAttention
    from kerasish.layers.dot_attention import Attention as Attention
    from kerasish.layers.einsum_dense import EinsumDense as EinsumDense
    from kerasish.layers.global_pooling import AdaptiveAveragePooling1D as AdaptiveAveragePooling1D
    from kerasish.layers.global_pooling import AdaptiveAveragePooling2D as AdaptiveAveragePooling2D
    from kerasish.layers.global_pooling import AdaptiveAveragePooling3D as AdaptiveAveragePooling3D
    from kerasish.layers.global_pooling import AdaptiveMaxPooling1D as AdaptiveMaxPooling1D
    from kerasish.layers.global_pooling import AdaptiveMaxPooling2D as AdaptiveMaxPooling2D
    from kerasish.layers.global_pooling import AdaptiveMaxPooling3D as AdaptiveMaxPooling3D
    from kerasish.layers.global_pooling import GlobalAveragePooling1D as GlobalAveragePooling1D
    from kerasish.layers.global_pooling import GlobalAveragePooling1D as GlobalAvgPool1D
    from kerasish.layers.global_pooling import GlobalAveragePooling2D as GlobalAveragePooling2D
    from kerasish.layers.global_pooling import GlobalAveragePooling2D as GlobalAvgPool2D
    from kerasish.layers.global_pooling import GlobalAveragePooling3D as GlobalAveragePooling3D
    from kerasish.layers.global_pooling import GlobalAveragePooling3D as GlobalAvgPool3D
    from kerasish.layers.global_pooling import GlobalMaxPooling1D as GlobalMaxPool1D
    from kerasish.layers.global_pooling import GlobalMaxPooling1D as GlobalMaxPooling1D
    from kerasish.layers.global_pooling import GlobalMaxPooling2D as GlobalMaxPool2D
    from kerasish.layers.global_pooling import GlobalMaxPooling2D as GlobalMaxPooling2D
    from kerasish.layers.global_pooling import GlobalMaxPooling3D as GlobalMaxPool3D
    from kerasish.layers.global_pooling import GlobalMaxPooling3D as GlobalMaxPooling3D
    from kerasish.layers.jax_function import FlaxLayer as FlaxLayer
    from kerasish.layers.jax_function import JaxLayer as JaxLayer
    from kerasish.layers.merging import Add as Add
    from kerasish.layers.merging import Average as Average
    from kerasish.layers.merging import Concatenate as Concatenate
    from kerasish.layers.merging import Dot as Dot
    from kerasish.layers.merging import Maximum as Maximum
    from kerasish.layers.merging import Minimum as Minimum
    from kerasish.layers.merging import Multiply as Multiply
    from kerasish.layers.merging import Subtract as Subtract
    from kerasish.layers.merging import add as add
    from kerasish.layers.merging import average as average
    from kerasish.layers.merging import concatenate as concatenate
    from kerasish.layers.merging import dot as dot
    from kerasish.layers.merging import maximum as maximum
    from kerasish.layers.merging import minimum as minimum
    from kerasish.layers.merging import multiply as multiply
    from kerasish.layers.merging import subtract as subtract
    from kerasish.layers.normalization import BatchNormalization as BatchNormalization
    from kerasish.layers.normalization import GroupNormalization as GroupNormalization
    from kerasish.layers.normalization import LayerNormalization as LayerNormalization
    from kerasish.layers.normalization import RMSNormalization as RMSNormalization
    from kerasish.layers.normalization import UnitNormalization as UnitNormalization
    from kerasish.layers.pooling import AveragePooling1D as AveragePooling1D
    from kerasish.layers.pooling import AveragePooling1D as AvgPool1D
    from kerasish.layers.pooling import AveragePooling2D as AveragePooling2D
    from kerasish.layers.pooling import AveragePooling2D as AvgPool2D
    from kerasish.layers.pooling import AveragePooling3D as AveragePooling3D
    from kerasish.layers.pooling import AveragePooling3D as AvgPool3D
    from kerasish.layers.pooling import MaxPooling1D as MaxPool1D
    from kerasish.layers.pooling import MaxPooling1D as MaxPooling1D
    from kerasish.layers.pooling import MaxPooling2D as MaxPool2D
    from kerasish.layers.pooling import MaxPooling2D as MaxPooling2D
    from kerasish.layers.pooling import MaxPooling3D as MaxPool3D
    from kerasish.layers.pooling import MaxPooling3D as MaxPooling3D
    from kerasish.layers.preprocessing.discretization import Discretization as Discretization
    from kerasish.layers.preprocessing.encoding import CategoryEncoding as CategoryEncoding
    from kerasish.layers.preprocessing.hashing import HashedCrossing as HashedCrossing
    from kerasish.layers.preprocessing.hashing import Hashing as Hashing
    from kerasish.layers.preprocessing.lookups import IntegerLookup as IntegerLookup
    from kerasish.layers.preprocessing.lookups import StringLookup as StringLookup
    from kerasish.layers.preprocessing.spectrograms import MelSpectrogram as MelSpectrogram
    from kerasish.layers.preprocessing.spectrograms import STFTSpectrogram as STFTSpectrogram
    from kerasish.layers.preprocessing.text import TextVectorization as TextVectorization
    from kerasish.layers.recurrent.bidirectional import Bidirectional as Bidirectional
    from kerasish.layers.recurrent.conv_lstm import ConvLSTM1D as ConvLSTM1D
    from kerasish.layers.recurrent.conv_lstm import ConvLSTM2D as ConvLSTM2D
    from kerasish.layers.recurrent.conv_lstm import ConvLSTM3D as ConvLSTM3D
    from kerasish.layers.recurrent.gru import GRU as GRU
    from kerasish.layers.recurrent.gru import GRUCell as GRUCell
    from kerasish.layers.recurrent.loop import RNN as RNN
    from kerasish.layers.recurrent.loop import StackedRNNCells as StackedRNNCells
    from kerasish.layers.recurrent.lstm import LSTM as LSTM
    from kerasish.layers.recurrent.lstm import LSTMCell as LSTMCell
    from kerasish.layers.recurrent.simple import SimpleRNN as SimpleRNN
    from kerasish.layers.recurrent.simple import SimpleRNNCell as SimpleRNNCell
    from kerasish.layers.regularization import ActivityRegularization as ActivityRegularization
    from kerasish.layers.regularization import AlphaDropout as AlphaDropout
    from kerasish.layers.regularization import Dropout as Dropout
    from kerasish.layers.regularization import GaussianDropout as GaussianDropout
    from kerasish.layers.regularization import GaussianNoise as GaussianNoise
    from kerasish.layers.regularization import SpatialDropout1D as SpatialDropout1D
    from kerasish.layers.regularization import SpatialDropout2D as SpatialDropout2D
    from kerasish.layers.regularization import SpatialDropout3D as SpatialDropout3D
    from kerasish.layers.resampling import Cropping1D as Cropping1D
    from kerasish.layers.resampling import Cropping2D as Cropping2D
    from kerasish.layers.resampling import Cropping3D as Cropping3D
    from kerasish.layers.resampling import UpSampling1D as UpSampling1D
    from kerasish.layers.resampling import UpSampling2D as UpSampling2D
    from kerasish.layers.resampling import UpSampling3D as UpSampling3D
    from kerasish.layers.resampling import ZeroPadding1D as ZeroPadding1D
    from kerasish.layers.resampling import ZeroPadding2D as ZeroPadding2D
    from kerasish.layers.resampling import ZeroPadding3D as ZeroPadding3D
    from kerasish.layers.rescaling import Normalization as Normalization
    from kerasish.layers.rescaling import Rescaling as Rescaling
    from kerasish.layers.reshaping import Flatten as Flatten
    from kerasish.layers.reshaping import Permute as Permute
    from kerasish.layers.reshaping import RepeatVector as RepeatVector
    from kerasish.layers.reshaping import Reshape as Reshape
    from kerasish.layers.reversible import ReversibleEmbedding as ReversibleEmbedding
    from kerasish.layers.spectral import SpectralNormalization as SpectralNormalization
    from kerasish.layers.torch_module import TorchModuleWrapper as TorchModuleWrapper
    from kerasish.layers.transposed import Conv1DTranspose as Conv1DTranspose
    from kerasish.layers.transposed import Conv1DTranspose as Convolution1DTranspose
    from kerasish.layers.transposed import Conv2DTranspose as Conv2DTranspose
    from kerasish.layers.transposed import Conv2DTranspose as Convolution2DTranspose
    from kerasish.layers.transposed import Conv3DTranspose as Conv3DTranspose
    from kerasish.layers.transposed import Conv3DTranspose as Convolution3DTranspose
    from kerasish.layers.wrappers import TimeDistributed as TimeDistributed
    from kerasish.layers.wrappers import Wrapper as Wrapper

registry.add_builtins("keras.layers", {"Layer": Layer, "InputLayer": InputLayer})
registry.add_builtins("keras.layers", {n: p for n, p in _PLACES.items() if n[0].isupper()})


def serialize(layer: Layer) -> Config:
    """Return a layer as what JSON can hold.

    Args:
        layer: a layer.

    Example:
        >>> from kerasish import layers
        >>> layers.serialize(layers.Dense(3))["class_name"]
        'Dense'
    """
    return registry.serialize_keras_object(layer)


@hides_frames
def deserialize(config: Config | str, custom_objects: dict[str, Any] | None = None) -> "SomeLayer":
    """Return the layer that `serialize` was given.

    Args:
        config: what `serialize` returned.
        custom_objects: name -> class or function, for names that are not registered; None: none.

    Raises:
        ValueError: it is the config of no layer, or names a class that is not known.

    Example:
        >>> from kerasish import layers
        >>> layers.deserialize(layers.serialize(layers.Dense(3))).units
        3
    """
    result = deserialize_of(config, "keras.layers", "layer", custom_objects)
    is_layer = isinstance(result, Layer)
    if not is_layer:
        raise ValueError(
            "layers.deserialize: expected the config of a layer, as `serialize` returns it, got "
            f"{config!r}."
        )
    return result
