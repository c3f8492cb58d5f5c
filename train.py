"""Train one model: `python train.py attention=bahdanau data=demo`; `--help` lists the choices."""

from seq2seq_attn.cli.train import main

if __name__ == "__main__":
    main()
