"""Callbacks: stopping, saving, learning rates, progress and logs. They receive the model."""

from kerasish.callbacks.callback import Callback as Callback
from kerasish.callbacks.callback_list import CallbackList as CallbackList
from kerasish.callbacks.history import History as History
from kerasish.callbacks.progress import ProgbarLogger as ProgbarLogger
from kerasish.first_use import imports_on_first_use
from kerasish.unsupported import explain

with imports_on_first_use(__name__, explain(__name__)):
    from kerasish.callbacks.autopsy import NaNAutopsy as NaNAutopsy
    from kerasish.callbacks.averages import SwapEMAWeights as SwapEMAWeights
    from kerasish.callbacks.backup import BackupAndRestore as BackupAndRestore
    from kerasish.callbacks.checkpoint import ModelCheckpoint as ModelCheckpoint
    from kerasish.callbacks.input_monitor import InputMonitor as InputMonitor
    from kerasish.callbacks.live_monitor import LiveMonitor as LiveMonitor
    from kerasish.callbacks.logs import CSVLogger as CSVLogger
    from kerasish.callbacks.logs import LambdaCallback as LambdaCallback
    from kerasish.callbacks.profiler import Profiler as Profiler
    from kerasish.callbacks.remote import RemoteMonitor as RemoteMonitor
    from kerasish.callbacks.resume import Resume as Resume
    from kerasish.callbacks.schedule import LearningRateScheduler as LearningRateScheduler
    from kerasish.callbacks.schedule import ReduceLROnPlateau as ReduceLROnPlateau
    from kerasish.callbacks.stopping import EarlyStopping as EarlyStopping
    from kerasish.callbacks.stopping import TerminateOnNaN as TerminateOnNaN
    from kerasish.callbacks.tensorboard import TensorBoard as TensorBoard
