"""The estimators by name: two dialects, SciKeras's and Keras's."""

from kerasish.wrappers.classifier import KerasClassifier as KerasClassifier
from kerasish.wrappers.keras_dialect import SKLearnClassifier as SKLearnClassifier
from kerasish.wrappers.keras_dialect import SKLearnRegressor as SKLearnRegressor
from kerasish.wrappers.keras_dialect import SKLearnTransformer as SKLearnTransformer
from kerasish.wrappers.regressor import KerasRegressor as KerasRegressor
