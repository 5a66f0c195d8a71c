"""Results of the verbs, as frozen models. `Run` and `Client` return them; `--json` and HTTP send them."""
