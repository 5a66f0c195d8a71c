"""BMS against random orders under declared priors (paper, Section 4.3, "Sequence Selection", centre and right)."""
