"""Base models: where they lie, their layers, their blocks and heads, and how features become tensors."""
