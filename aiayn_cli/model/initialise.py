"""Initial weights, in one place; the paper does not give them."""

import torch
from torch import nn

from aiayn_cli.model.attention import MultiHeadAttention
from aiayn_cli.model.embeddings import LearnedPositions


@torch.no_grad()
def initialise(model: nn.Module) -> None:
    """Draw all weights from torch's default generator.

    Embeddings are N(0, d_model^-0.5), as in the paper's first code (Tensor2Tensor, June 2017); times sqrt(d_model)
    they enter the network with unit variance. Linear layers are uniform with Glorot and Bengio's (2010) bounds, each
    of the query, key and value matrices taken by itself, since a fused matrix has other fans. Biases are 0; norms
    start as the identity.
    """
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
        elif isinstance(module, LearnedPositions):
            nn.init.normal_(module.weight, std=0.02)  # small beside the tokens' unit variance
        elif isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
    for module in model.modules():  # after the plain pass, which treated w_qkv as one matrix
        if isinstance(module, MultiHeadAttention):
            widths = [module.n_heads * module.d_k, module.n_heads * module.d_k, module.n_heads * module.d_v]
            for matrix in torch.split(module.w_qkv.weight, widths):
                nn.init.xavier_uniform_(matrix)
