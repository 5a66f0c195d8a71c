"""Values of packages that only some callers use: they are recognised, and the package is not imported for that."""

from __future__ import annotations

import sys


def is_of(value: object, package: str, *classes: str) -> bool:
    """True if a value is of one of some classes of a package, which a caller who has such a value has imported.

    Another thread may be importing the package at this moment: then its classes are not there yet, and no value is.

    >>> import fractions
    >>> is_of(fractions.Fraction(1), "fractions", "Fraction", "NoSuchClass"), is_of(1, "no_such_package", "Fraction")
    (True, False)
    """
    module = sys.modules.get(package)
    return isinstance(value, tuple(getattr(module, name) for name in classes if hasattr(module, name)))
