"""See what a model attends to, in a browser: `python explore.py ckpt_path=RUN`, and `compare=RUN` beside another."""

from seq2seq_attn.cli.explore import main

if __name__ == "__main__":
    main()
