"""`python -m seq2seq_attn` is the command `seq2seq-attn`."""

from seq2seq_attn.cli.command import main

main()
