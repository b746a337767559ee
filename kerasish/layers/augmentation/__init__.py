"""Pictures changed at random or by rule, one family a file."""
