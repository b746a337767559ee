"""Common mistakes: detected once, before training, and reported in one line with the fix.

What cannot work raises; what works but is rarely meant is an `AdviceWarning`, once per model.
Nothing here runs in a step: structure is checked once per `compile`, data once per `fit`, and of
large arrays only evenly spaced rows. Class numbers and indices are the exception (`batches.py`):
all rows of arrays, and each batch of other sources before its step.
"""

from kerasish.engine.diagnostics.advice import warn_once as warn_once
from kerasish.engine.diagnostics.batches import BatchCheck as BatchCheck
from kerasish.engine.diagnostics.batches import batch_check as batch_check
from kerasish.engine.diagnostics.batches import check_all as check_all
from kerasish.engine.diagnostics.check import check_data as check_data
from kerasish.engine.diagnostics.check import check_loss_value as check_loss_value
from kerasish.engine.diagnostics.frozen import Flags as Flags
from kerasish.engine.diagnostics.frozen import check_frozen as check_frozen
from kerasish.engine.diagnostics.frozen import flags_of as flags_of
from kerasish.engine.diagnostics.match import Match as Match
from kerasish.engine.diagnostics.shapes import check_shapes as check_shapes
from kerasish.engine.diagnostics.split import check_split as check_split
from kerasish.errors import AdviceWarning as AdviceWarning
