"""Structures of different shapes as one batch: trees, lists and graphs, walked by Python."""

from kerasish.engine.data.structures import Structures as Structures
from kerasish.engine.folding.folded import Folded as Folded
