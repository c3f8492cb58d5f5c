"""Translate standard input, line by line: `python translate.py ckpt_path=RUN < source.txt > target.txt`."""

from seq2seq_attn.cli.translate import main

if __name__ == "__main__":
    main()
