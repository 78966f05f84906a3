"""The four ids that mean the same in every vocabulary of the project: constants, not options."""

PAD_ID = 0  # fills a batch up to its longest sequence; never read, never predicted
UNK_ID = 1  # a character that the vocabulary does not have
BOS_ID = 2  # what the decoder reads before the first target token
EOS_ID = 3  # ends every source and every target sequence
N_SPECIAL_TOKENS = 4
