"""Make DIRECTORY/model, a Qwen2 model of a few thousand parameters with a byte tokenizer, and DIRECTORY/data.jsonl.
Nothing is downloaded."""
import json
import pathlib
import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

to = pathlib.Path(sys.argv[1])
words = {text: i for i, text in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
tokenizer = Tokenizer(models.BPE(words, []))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>",
                               additional_special_tokens=["<|im_start|>"])
torch.manual_seed(0)
model = Qwen2ForCausalLM(Qwen2Config(vocab_size=len(fast), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                                     num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=512,
                                     eos_token_id=fast.eos_token_id, pad_token_id=fast.pad_token_id))
model.save_pretrained(to / "model")
fast.save_pretrained(to / "model")
with open(to / "data.jsonl", "w") as file:
    for i in range(32):
        talk = [{"role": "user", "content": f"{i} + 1"}, {"role": "assistant", "content": str(i + 1)}]
        file.write(json.dumps({"messages": talk}) + "\n")
