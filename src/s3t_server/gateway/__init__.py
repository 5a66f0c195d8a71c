"""Beside an engine with LoRA adapters: a run's chains answer from there, under the same fence. Needs the extra `serve`.

ledger → keeper → engine           the engine has the adapters of what serves, and nothing of what was deleted
            ↓        ↑
request → gateway ───┘             each shard's answer is asked of the engine, and the run combines them
"""
