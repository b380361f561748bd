"""A language model of a few thousand random weights, as a Hugging Face directory: enough to generate with."""

from __future__ import annotations

from pathlib import Path

PAD, UNKNOWN, END, USER, ASSISTANT = "<pad>", "<unknown>", "<end>", "<user>", "<assistant>"
TEMPLATE = (
    "{% for message in messages %}<user>{{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def save(folder: Path, head: int = 8) -> Path:
    """Write the model; its heads are `head` wide (vLLM takes none below 32)."""
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    tokens = (PAD, UNKNOWN, END, USER, ASSISTANT, *"0123456789+,=")
    table = Tokenizer(models.WordLevel({token: at for at, token in enumerate(tokens)}, UNKNOWN))
    table.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    table.decoder = decoders.Fuse()
    words = PreTrainedTokenizerFast(
        tokenizer_object=table, pad_token=PAD, unk_token=UNKNOWN, eos_token=END,
        additional_special_tokens=[USER, ASSISTANT],
    )  # fmt: skip
    words.chat_template = TEMPLATE
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokens), hidden_size=2 * head, intermediate_size=4 * head, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64, tie_word_embeddings=True,
        pad_token_id=0, eos_token_id=2, bos_token_id=None, initializer_range=0.5,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder
