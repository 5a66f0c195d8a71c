"""The trained Llama of 260,000 parameters in `S3T_DATA`, as a folder that transformers loads.

    python -m testing.stories260k --output FOLDER

It writes short English stories, so tests can see a language model at work without a hub. The files have the layout of
llama2.c: seven whole numbers and then float32 tensors; a tokenizer of pieces with scores.
"""

from __future__ import annotations

import argparse
import os
import struct
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from s3t.errors import DataError

BEGIN, END = "<s>", "</s>"
SPECIAL = ("<unk>", BEGIN, END)
BYTES = 256
"""Pieces after the special ones, each of one byte; a character that is no piece is spelled with them."""
HEADER = struct.Struct("<7i")
PIECE = struct.Struct("<fi")


def convert(weights: Path, pieces: Path, output: Path) -> Path:
    """Write configuration, safetensors and tokenizer.

    Args:
        weights: of the model, as `stories260K.bin`.
        pieces: of its tokenizer, as `tok512.bin`.
        output: folder to write.

    Raises:
        DataError: a file is not of that layout, or the two do not fit.
    """
    config, tensors = read_weights(weights)
    tokenizer = tokenizer_of(read_pieces(pieces))
    if tokenizer.get_vocab_size() != config.vocab_size:
        raise DataError(
            str(pieces), f"{tokenizer.get_vocab_size()} pieces, but {weights} has {config.vocab_size}; name its own"
        )
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    model.load_state_dict(tensors, strict=False, assign=True)
    model.tie_weights()
    missing = [name for name, tensor in model.named_parameters() if tensor.is_meta]
    if missing:
        raise RuntimeError(f"no values for {', '.join(missing)}")
    transformers.utils.logging.disable_progress_bar()
    model.save_pretrained(output)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token=BEGIN, eos_token=END
    ).save_pretrained(output)
    return output


def read_weights(path: Path) -> tuple[LlamaConfig, dict[str, Tensor]]:
    """Configuration and tensors by transformers' names.

    Raises:
        DataError: the file is not as long as its header says.
    """
    content = path.read_bytes()
    if len(content) < HEADER.size:
        raise DataError(str(path), f"{len(content)} bytes; the header alone has {HEADER.size}")
    width, hidden, layers, heads, kv_heads, vocabulary, length = HEADER.unpack_from(content)
    if min(width, hidden, layers, heads, kv_heads, vocabulary, length) < 1:
        raise DataError(
            str(path), "a size in the header is below 1; models with an output layer of their own are not read"
        )
    head, values = width // heads, np.frombuffer(content, dtype="<f4", offset=HEADER.size)
    shapes = {
        "embed_tokens": (vocabulary, width),
        "input_layernorm": (layers, width),
        "self_attn.q_proj": (layers, width, width),
        "self_attn.k_proj": (layers, kv_heads * head, width),
        "self_attn.v_proj": (layers, kv_heads * head, width),
        "self_attn.o_proj": (layers, width, width),
        "post_attention_layernorm": (layers, width),
        "mlp.gate_proj": (layers, hidden, width),
        "mlp.down_proj": (layers, width, hidden),
        "mlp.up_proj": (layers, hidden, width),
        "norm": (width,),
        "rotary tables": (2, length, head // 2),
    }
    counts = [int(np.prod(shape)) for shape in shapes.values()]
    if len(values) != sum(counts):
        raise DataError(str(path), f"{len(values)} numbers after the header, which asks for {sum(counts)}")
    parts = np.split(values, np.cumsum(counts)[:-1])
    found: dict[str, Tensor] = {}
    for (name, shape), part in zip(shapes.items(), parts, strict=True):
        tensor = torch.from_numpy(part.reshape(shape).copy())
        if name == "rotary tables":  # computed by transformers
            continue
        if name in ("embed_tokens", "norm"):
            found[f"model.{name}.weight"] = tensor
            continue
        for layer, own in enumerate(tensor):
            turned = halves_of_pairs(own, head) if name.endswith(("q_proj", "k_proj")) else own
            found[f"model.layers.{layer}.{name}.weight"] = turned.contiguous()
    sizes = {"hidden_size": width, "intermediate_size": hidden, "num_hidden_layers": layers}
    config = LlamaConfig(
        **sizes,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        vocab_size=vocabulary,
        max_position_embeddings=length,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=SPECIAL.index(BEGIN),
        eos_token_id=SPECIAL.index(END),
    )
    return config, found


def halves_of_pairs(weight: Tensor, head: int) -> Tensor:
    """The rows of each head in another order: llama2.c turns rows 0 and 1, 2 and 3, ...; transformers turns row 0 and
    the first of the head's second half, and so on.

    >>> halves_of_pairs(torch.arange(8.0)[:, None], head=4).flatten().tolist()
    [0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0]
    """
    return weight.reshape(-1, head // 2, 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def read_pieces(path: Path) -> list[tuple[str, float]]:
    """Pieces with their scores, in the order of their ids; a space in them is a space.

    Raises:
        DataError: the file ends within a piece.
    """
    content, place = path.read_bytes(), 4  # the first number is the longest piece's length
    found: list[tuple[str, float]] = []
    while place < len(content):
        if place + PIECE.size > len(content):
            raise DataError(str(path), f"it ends within piece {len(found)}")
        score, count = PIECE.unpack_from(content, place)
        place += PIECE.size + count
        if count < 0 or place > len(content):
            raise DataError(str(path), f"it ends within piece {len(found)}")
        found.append((content[place - count : place].decode(), score))
    if len(found) < len(SPECIAL) + BYTES:
        raise DataError(str(path), f"{len(found)} pieces; special ones and bytes alone are {len(SPECIAL) + BYTES}")
    return found


def tokenizer_of(pieces: list[tuple[str, float]]) -> Tokenizer:
    """Byte-pair encoding that joins, of all neighbours whose join is a piece, those of the highest score first."""
    first = len(SPECIAL) + BYTES
    own = [(text.replace(" ", "▁"), score) for text, score in pieces[first:]]
    names = [*SPECIAL, *(f"<0x{number:02X}>" for number in range(BYTES)), *(text for text, _ in own)]
    vocabulary = {name: number for number, name in enumerate(names)}
    known = {text for text, _ in own}
    merges = [
        (text[:cut], text[cut:])
        for text, _ in sorted(own, key=lambda piece: -piece[1])
        for cut in range(1, len(text))
        if text[:cut] in known and text[cut:] in known
    ]
    tokenizer = Tokenizer(BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(content=" ", left=1)]
    )
    tokenizer.post_processor = TemplateProcessing(
        single=f"{BEGIN} $A", pair=f"{BEGIN} $A {BEGIN} $B", special_tokens=[(BEGIN, SPECIAL.index(BEGIN))]
    )
    return tokenizer


def main() -> None:
    """Convert the files of `S3T_DATA`."""
    parser = argparse.ArgumentParser(prog="python -m testing.stories260k", description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="folder to write")
    weights = Path(os.environ.get("S3T_DATA", "../shared/data")) / "weights"
    try:
        convert(weights / "stories260K.bin", weights / "tok512.bin", parser.parse_args().output)
    except (DataError, OSError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
