"""The paper's figures on sequence selection and deletion rate, computed anew, with our own curve beside them.

python -m experiments NAME           compute, write results.json and figure.png; goes on where it was stopped
python -m experiments NAME --draw    draw again from the committed results.json
python -m experiments NAME --smoke   a small size, to see that it works; keeps nothing
python -m experiments NAME --jobs 4  that many processes share the work; without it, as many as there are cores
python -m experiments all

An experiment is a folder: `config.yaml` (every setting), `experiment.py` (computes; knows nothing of pictures),
`figure.py` (draws), and what they leave: `results.json`, `figure.png`, and a README that says what it shows. They
import the package, never the reverse.
"""
