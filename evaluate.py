"""Score a trained model: `python evaluate.py ckpt_path=RUN`, on its own test sets or on `data=...`."""

from seq2seq_attn.cli.evaluate import main

if __name__ == "__main__":
    main()
