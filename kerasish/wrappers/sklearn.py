"""The estimators with SciKeras's interface and with Keras's, and the tools for searches."""

from kerasish.wrappers.classifier import KerasClassifier as KerasClassifier
from kerasish.wrappers.keras_dialect import SKLearnClassifier as SKLearnClassifier
from kerasish.wrappers.keras_dialect import SKLearnRegressor as SKLearnRegressor
from kerasish.wrappers.keras_dialect import SKLearnTransformer as SKLearnTransformer
from kerasish.wrappers.memory import SearchMemory as SearchMemory
from kerasish.wrappers.regressor import KerasRegressor as KerasRegressor
from kerasish.wrappers.searches import results_frame as results_frame
from kerasish.wrappers.searches import search_progress as search_progress
