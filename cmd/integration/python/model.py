"""Makes a tiny model of random weights with GPT-2's vocabulary: model.py VOCABULARY FOLDER"""
import json
import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

vocabulary, folder = sys.argv[1:]
with open(vocabulary + "/encoder.json", encoding="utf-8") as f:
    tokens = json.load(f)
with open(vocabulary + "/vocab.bpe", encoding="utf-8") as f:
    merges = [tuple(line.split()) for line in f.read().split("\n") if line and not line.startswith("#version")]
tokenizer = Tokenizer(models.BPE(vocab=tokens, merges=merges))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
end = "<|endoftext|>"
whole = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=end, eos_token=end, pad_token=end)
whole.chat_template = (
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
whole.save_pretrained(folder)
torch.manual_seed(1)
LlamaForCausalLM(LlamaConfig(
    vocab_size=len(tokens), hidden_size=128, intermediate_size=256, num_hidden_layers=2,
    num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=4096,
    bos_token_id=tokens[end], eos_token_id=tokens[end],
)).save_pretrained(folder)
