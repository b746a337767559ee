"""scikit-learn estimators for models; imported on first use."""

from kerasish.wrappers.onnx_converters import register_onnx_converters as register_onnx_converters
from kerasish.wrappers.sklearn import KerasClassifier as KerasClassifier
from kerasish.wrappers.sklearn import KerasRegressor as KerasRegressor
from kerasish.wrappers.sklearn import SearchMemory as SearchMemory
from kerasish.wrappers.sklearn import SKLearnClassifier as SKLearnClassifier
from kerasish.wrappers.sklearn import SKLearnRegressor as SKLearnRegressor
from kerasish.wrappers.sklearn import SKLearnTransformer as SKLearnTransformer
from kerasish.wrappers.sklearn import results_frame as results_frame
from kerasish.wrappers.sklearn import search_progress as search_progress
