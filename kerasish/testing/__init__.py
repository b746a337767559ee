"""Checks for those who extend kerasish: gradients of ops, conformance of backends."""

from kerasish.testing.conformance import check_backend as check_backend
from kerasish.testing.gradients import gradient_check as gradient_check
