"""The basic ops, each with its shape rule, gradient and reference kernel, and control flow."""
