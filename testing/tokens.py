"""Tiny tokenizers of the kinds that real language models have, saved as folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, Unigram
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA2 = (
    "{% for m in messages %}{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + m['content'].strip() + ' [/INST]' }}"
    "{% elif m['role'] == 'assistant' %}{{ ' ' + m['content'].strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)
DATED = "{{ 'Today is ' + strftime_now('%A, %d %b %Y') + '\n' }}"


def byte_level(folder: Path, template: str, *, eos: str = "</s>", prefix: tuple[str, ...] = ()) -> Path:
    """As GPT-2 and Qwen: bytes, of which two lines' ends are one token.

    Args:
        folder: to write.
        template: of chats.
        eos: the end of text.
        prefix: special tokens before each text.
    """
    special = ["<s>", "</s>", "<pad>", "<|im_start|>", "<|im_end|>", "[gMASK]"]
    names = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet()), "ĊĊ", "th"]
    tokenizer = Tokenizer(BPE({name: number for number, name in enumerate(names)}, [("Ċ", "Ċ"), ("t", "h")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if prefix:
        ids = [(name, special.index(name)) for name in prefix]
        tokenizer.post_processor = TemplateProcessing(single=[*prefix, "$A"], special_tokens=ids)
    more: list[Any] = [*special[3:], AddedToken("<tool>", special=False)]
    return _saved(tokenizer, folder, template, eos=eos, more=more)


def byte_fallback(folder: Path, template: str) -> Path:
    """As Llama 2: pieces with a blank before words, and bytes for what is no piece."""
    letters = "abcdefghijklmnopqrstuvwxyz[]/<>INST0123456789:."
    names = ["<unk>", "<s>", "</s>", *(f"<0x{number:02X}>" for number in range(256)), "▁", *letters, "▁t", "▁th"]
    tokenizer = Tokenizer(
        BPE({name: number for number, name in enumerate(names)}, [("▁", "t"), ("▁t", "h")], byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return _saved(tokenizer, folder, template, eos="</s>", more=[])


def unigram(folder: Path) -> Path:
    """As XLM-R and DeBERTa-v3: control tokens are pieces of the model itself, and widths are normalised."""
    pieces = [("<s>", 0.0), ("</s>", 0.0), ("<pad>", 0.0), ("<unk>", 0.0), *((f"{c}", -3.0) for c in "▁abc</s>pd")]
    tokenizer = Tokenizer(Unigram([*dict(pieces).items()], unk_id=3))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    pair = TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    tokenizer.post_processor = pair
    return _saved(tokenizer, folder, None, eos="</s>", more=[])


def _saved(tokenizer: Tokenizer, folder: Path, template: str | None, *, eos: str, more: list[Any]) -> Path:
    pad, unk = ("<pad>" if tokenizer.token_to_id("<pad>") is not None else None), tokenizer.token_to_id("<unk>")
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token=eos, pad_token=pad, unk_token="<unk>" if unk else None
    )
    wrapped.add_special_tokens({"additional_special_tokens": [name for name in more if isinstance(name, str)]})
    wrapped.add_tokens([name for name in more if not isinstance(name, str)])
    wrapped.chat_template = template
    wrapped.save_pretrained(folder)
    return folder
