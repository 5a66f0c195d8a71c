"""From inputs to answers: members, their ensemble, and how good it is."""
