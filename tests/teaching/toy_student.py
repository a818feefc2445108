"""A vision-language model of random weights, small enough to learn to prompt on one core in minutes: the architecture of
Qwen3-VL, a vocabulary of the words that episodes are made of, and a chat template without the tools' long schemas."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import AutoProcessor, PreTrainedTokenizerFast, Qwen3VLConfig, Qwen3VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
           "<|video_pad|>")  # fmt: skip
TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
PHRASES = ('\n{"name": "', '", "arguments": {"', '": [', "]}}\n", "}}\n", '], "positive": ', '": ', ", ", "{}}\n",
           "The image has ", " pixels. You have ", " turns.", " of the image; the segmenter expects an IoU of ",
           "This was the last turn: the episode ends.", " turns left.", " turn left.", "user\n", "assistant\n")  # fmt: skip
SPLIT = r"<\|\w+\|>|</?tool_\w+>|[A-Za-z_]+|\d|\n|."
VOCABULARY_TEXT = """\
Target disk The image has x pixels You have turn turns left This was the last ends episode Mask covers of is empty
segmenter expects an IoU Stopped Done over nothing can be called any more There is no mask now Set a box or point
All are used user assistant system name arguments add_box add_point undo stop box keep absent positive true false
dummy hello done said"""
TEMPLATE = """\
{%- macro shown(content) -%}
{%- if content is string %}{{ content }}{% else %}{% for block in content -%}
{%- if block.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% elif 'text' in block %}{{ block.text }}{% endif -%}
{%- endfor %}{% endif -%}
{%- endmacro -%}
{%- for message in messages -%}
{%- if message.role == 'user' %}<|im_start|>user
{{ shown(message.content) }}<|im_end|>
{% elif message.role == 'tool' %}<|im_start|>user
<tool_response>{{ shown(message.content) }}</tool_response><|im_end|>
{% elif message.role == 'assistant' %}<|im_start|>assistant
{% generation %}{{ shown(message.content) }}{% for call in message.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>{% endgeneration %}
{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif -%}"""
RESPONSE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "tool_calls": {
            "open": "<tool_call>", "close_pattern": r"</tool_call>\s*", "repeats": True, "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"<\|im_end\|>\s*", "content": "text"},
    },
}  # fmt: skip


class ToyProcessor(Qwen3VLProcessor):
    """Without videos, whose processor needs torchvision."""

    def __init__(
        self, image_processor: Any = None, tokenizer: Any = None, chat_template: Any = None, **options: Any
    ) -> None:
        self.image_token, self.video_token = "<|image_pad|>", "<|video_pad|>"
        self.image_token_id = tokenizer.convert_tokens_to_ids(self.image_token)
        self.video_token_id = tokenizer.convert_tokens_to_ids(self.video_token)
        super(Qwen3VLProcessor, self).__init__(image_processor, tokenizer, chat_template=chat_template)


AutoProcessor.register(Qwen3VLConfig, ToyProcessor, exist_ok=True)


def tokenizer(texts: Iterable[str] = ()) -> PreTrainedTokenizerFast:
    """Words, digits and letters one by one; what is not in the vocabulary is told apart by letters."""
    words = [word for text in (VOCABULARY_TEXT, *texts) for word in re.findall(SPLIT, text)]
    vocabulary = dict.fromkeys(["[UNK]", *SPECIAL, *TAGS, "\n", " ", *string.punctuation, *string.digits, *words])
    inner = Tokenizer(WordLevel({word: number for number, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    inner.pre_tokenizer = Split(Regex(SPLIT), behavior="isolated")
    inner.decoder = Fuse()
    inner.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in SPECIAL])
    inner.add_tokens([AddedToken(word, special=False, normalized=False) for word in (*TAGS, *PHRASES)])
    fast_tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="[UNK]", pad_token="<|endoftext|>", eos_token="<|im_end|>",
        chat_template=TEMPLATE, padding_side="left",
    )  # fmt: skip
    fast_tokenizer.response_template = RESPONSE
    return fast_tokenizer


def build(folder: Path, *, side: int = 32, width: int = 64, layers: int = 2, seed: int = 0) -> Path:
    """Write a model of random weights with its processor, as any model folder of transformers.

    Args:
        side: pixels of the square pictures that it is shown.
        width: channels of the language model.
    """
    torch.manual_seed(seed)
    words = tokenizer()
    ids = {name: words.convert_tokens_to_ids(name) for name in SPECIAL}
    heads = 4
    third = width // heads // 6
    config = Qwen3VLConfig(
        text_config={
            "initializer_range": 0.05, "vocab_size": len(words), "hidden_size": width, "intermediate_size": 3 * width,
            "num_hidden_layers": layers,
            "num_attention_heads": heads, "num_key_value_heads": heads, "head_dim": width // heads,
            "max_position_embeddings": 2048, "pad_token_id": ids["<|endoftext|>"],
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 10000.0, "mrope_interleaved": True,
                "mrope_section": [width // heads // 2 - 2 * third, third, third],
            },
        },
        vision_config={
            "initializer_range": 0.05, "depth": 1, "hidden_size": 64, "intermediate_size": 128, "num_heads": 4, "patch_size": 8,
            "spatial_merge_size": 1, "temporal_patch_size": 1, "out_hidden_size": width,
            "num_position_embeddings": (side // 8) ** 2, "deepstack_visual_indexes": [],
        },
        image_token_id=ids["<|image_pad|>"], video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"], vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=False,
    )  # fmt: skip
    model = Qwen3VLForConditionalGeneration(config)
    torch.nn.init.normal_(model.model.visual.pos_embed.weight, 0, 0.5)  # as loud as what the patches show
    model.generation_config.eos_token_id = ids["<|im_end|>"]
    model.generation_config.pad_token_id = ids["<|endoftext|>"]
    images = Qwen2VLImageProcessorPil(
        patch_size=8,
        merge_size=1,
        temporal_patch_size=1,
        size={"shortest_edge": side * side, "longest_edge": side * side},
    )
    model.save_pretrained(folder)
    ToyProcessor(images, words, chat_template=TEMPLATE).save_pretrained(folder)
    assert json.loads((folder / "config.json").read_text())["model_type"] == "qwen3_vl"
    return folder
