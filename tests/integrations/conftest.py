"""A tiny language model with its tokenizer, built from a config: nothing is downloaded."""

import numpy as np
import pytest

WORDS = "the a cat dog sat ran on under mat hill and slept ate fish bread why how is was good bad red blue".split()  # noqa: SIM905


@pytest.fixture(scope="session")
def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[EOS]", *WORDS])}
    core = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="[PAD]", unk_token="[UNK]", eos_token="[EOS]", padding_side="right"
    )


@pytest.fixture(scope="session")
def language_model(tokenizer, tmp_path_factory):
    """The folder of a causal language model of two layers."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, pad_token_id=0, eos_token_id=2, bos_token_id=None, initializer_range=0.5,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("lm")
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def texts():
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(WORDS, rng.integers(3, 12))) for _ in range(60)]


def states(folder, texts):
    """The last token's state of each text, each by itself: no padding."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        every = [model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0, -1] for text in texts]
    return torch.stack(every).double().numpy()


def votes(texts, features, rng, n_users=6, n_each=120, n_groups=2):
    """Rows of prompt, chosen and rejected by annotators in groups, with features of both texts."""
    wanted = rng.standard_normal((n_groups, features.shape[1])) / features.std(axis=0) / np.sqrt(features.shape[1])
    rows = []
    for user in range(n_users):
        for _ in range(n_each):
            one, other = rng.choice(len(texts), 2, replace=False)
            margin = 8.0 * (features[one] - features[other]) @ wanted[user % n_groups]
            if rng.random() > 1 / (1 + np.exp(-margin)):
                one, other = other, one
            rows.append(
                {
                    "prompt": "why is the cat good",
                    "chosen": texts[one],
                    "rejected": texts[other],
                    "annotator": f"ann {user}",
                    "chosen_embedding": features[one].tolist(),
                    "rejected_embedding": features[other].tolist(),
                }
            )
    return rows
