"""Run code written for `keras` or `tf.keras` on kerasish: import this module before it.

From then on, in this process, `import keras`, `import tf_keras` and `from tensorflow import keras`
give kerasish, with all modules below them, and `keras.src.<path>` gives the public names that Keras
defines there. `python -m kerasish script.py [arguments]` runs a whole script so. A name that
kerasish does not have raises an error that says what to use instead.

Raises:
    ImportError: Keras or TensorFlow has been imported before.
"""

from kerasish.aliases import install

install()
