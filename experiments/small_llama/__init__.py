"""Pre-train a small Llama on public text: a base for experiments that fine-tune language models and forget.

Read: the public half of Alpaca (experiments/alpaca.py) and other texts of S3T_DATA.
Write: a folder that transformers loads, in the folder that S3T_EXPERIMENTS names; results.json beside this file.
"""
