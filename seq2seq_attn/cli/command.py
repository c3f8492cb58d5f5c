"""The command `seq2seq-attn` and its subcommands: `seq2seq-attn draw curves RUN`."""

from __future__ import annotations

import sys
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module

from seq2seq_attn import __version__
from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.process import drop_unwritten, import_from_current_folder

NAME = "seq2seq-attn"
SUBCOMMANDS = {  # name: the module whose main() it runs, and what it does
    "train": ("cli.train", "train a model, test it and write its run folder"),
    "translate": ("cli.translate", "translate standard input or a file with a trained model"),
    "evaluate": ("cli.evaluate", "score a trained model on its test sets or other data"),
    "explore": ("cli.explore", "see in a browser what a model attends to"),
    "serve": ("cli.serve", "translate over HTTP"),
    "prepare": ("cli.prepare", "read, clean and encode the data that a training reads"),
    "align": ("cli.align", "alignment error rate of attention or of given links"),
    "average": ("checkpoint.average", "average the weights of checkpoints"),
    "compare lengths": ("comparison.lengths", "scores of runs by the length of the source"),
    "compare runs": ("comparison.runs", "one page with figures, curves and maps of runs"),
    "compare translations": ("comparison.translations", "test the difference of two evaluations"),
    "dashboard": ("comparison.dashboard", "a dashboard of runs in Weights & Biases"),
    "draw attention": ("inference.draw_attention", "attention maps of a sentence"),
    "draw curves": ("comparison.curves", "learning curves of runs"),
    "draw weights": ("comparison.weights", "attention weights of several presets"),
    "export ctranslate2": ("inference.export_ctranslate2", "write a model for CTranslate2"),
    "export hub": ("comparison.export_hub", "write a model with a model card, for a hub"),
    "export safetensors": ("checkpoint.export_safetensors", "write a model for publishing"),
    "heads": ("explorer.heads", "what each head of a model does, and the loss without it"),
    "rerank": ("evaluation.rerank", "choose from an n-best list by further models"),
}
HYDRA_COMMANDS = [name for name, (module, _) in SUBCOMMANDS.items() if module.startswith("cli.")]
HELP = f"""Usage: {NAME} SUBCOMMAND ... or {NAME} --version
{{subcommands}}
{NAME} SUBCOMMAND --help   explains a subcommand
{NAME} --help GROUP        lists the choices of a group (experiment, ...)
{NAME} -sc install=bash    prints shell completion, also for zsh and fish"""


@reports_user_errors
def main() -> None:
    """Run the subcommand that the command line names.

    Raises:
        UserError: if there is none of that name, or no group of options of the name after `--help`.
    """
    words = sys.argv[1:]
    if words == ["--version"]:
        print(f"{NAME} {__version__}")
        return
    if not words or words[0] in ("-h", "--help"):
        if words[1:]:
            from seq2seq_attn.cli.choices import config_dir, print_choices

            with suppress(BrokenPipeError):
                print_choices(words[1], config_dir(words[2:]))
            drop_unwritten()
            return
        listed = "\n".join(f"  {name:20}  {text}" for name, (_, text) in SUBCOMMANDS.items())
        with suppress(BrokenPipeError):  # its reader may be head
            print(HELP.format(subcommands=listed))
        drop_unwritten()
        return
    name: str | None
    if words[0] == "-sc":
        from seq2seq_attn.cli.completion import hydra_subcommand  # imports Hydra, which most subcommands do without

        asked = "".join(words[1:]).startswith("query=")
        name = hydra_subcommand(SUBCOMMANDS, HYDRA_COMMANDS) if asked else "train"
        if name is None:
            return
        words = [name, *words]
    name = next((" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in SUBCOMMANDS), None)
    if name is None and (longer := [known for known in SUBCOMMANDS if known.startswith(f"{words[0]} ")]):
        if words[1:2] in (["-h"], ["--help"]):
            print("\n".join(f"{NAME} {known:20}  {SUBCOMMANDS[known][1]}" for known in longer))
            return
        raise UserError(f"There is no subcommand '{' '.join(words[:2])}'; choose from: {', '.join(longer)}")
    if name is None:
        close = get_close_matches(" ".join(words[:2]), SUBCOMMANDS, n=1) or get_close_matches(
            words[0], SUBCOMMANDS, n=1
        )
        guess = f"; did you mean '{close[0]}'?" if close else f"; choose from: {', '.join(SUBCOMMANDS)}"
        raise UserError(f"There is no subcommand '{words[0]}'{guess}")
    import_from_current_folder()
    module = import_module(f"seq2seq_attn.{SUBCOMMANDS[name][0]}")
    # Lightning starts the other processes of a run by argv[0], so that of a training is a file
    needs_file = name in HYDRA_COMMANDS and "-sc" not in words  # completion is of the command that the user types
    program = str(module.__file__) if needs_file else NAME if name in HYDRA_COMMANDS else f"{NAME} {name}"
    sys.argv = [program, *words[len(name.split()) :]]
    module.main()
