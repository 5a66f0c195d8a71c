"""BMS against random orders under declared priors (paper, Section 5.4, "Sequence Selection", centre and right)."""
