"""Methods: what each stage trains, and which stages make up a model. One object each. Pure."""

from s3t.methods.choice import METHODS, method_named
from s3t.methods.method import Blocks, Declared, Method, Options, Trainable

__all__ = ["METHODS", "Blocks", "Declared", "Method", "Options", "Trainable", "method_named"]
