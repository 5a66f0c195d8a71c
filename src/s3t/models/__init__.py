"""Base models: where they lie, their layers, their blocks and heads, and how features become tensors."""

import logging

# PEFT imports bitsandbytes wherever it is installed. On some processors that looks for a faster kernel, which s3t does
# not use, and warns on the terminal that there is none.
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
