"""`python -m seq2seq_attn` is the command `seq2seq-attn`."""

from seq2seq_attn.cli.command import main

__spec__ = None  # type: ignore[assignment]  # Lightning then starts the other processes of a run by sys.argv

if __name__ == "__main__":  # the processes that prepare data import this module too
    main()
