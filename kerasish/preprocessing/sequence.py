"""Sequences, under the names that Keras keeps for older programs."""

from kerasish.utils.arrays import pad_sequences as pad_sequences
