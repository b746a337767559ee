"""scikit-learn estimators around models; not imported before somebody names it."""

from kerasish.wrappers.sklearn import KerasClassifier as KerasClassifier
from kerasish.wrappers.sklearn import KerasRegressor as KerasRegressor
from kerasish.wrappers.sklearn import SKLearnClassifier as SKLearnClassifier
from kerasish.wrappers.sklearn import SKLearnRegressor as SKLearnRegressor
from kerasish.wrappers.sklearn import SKLearnTransformer as SKLearnTransformer
