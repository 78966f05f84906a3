"""aiayn: a translation toolkit around one PyTorch Transformer ("Attention Is All You Need")."""

__version__ = "0.1.0"
