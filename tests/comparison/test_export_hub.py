"""seq2seq-attn export hub: a folder that translates as the run does, with a card of what is known and nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from configs import CONF, compose_train
from explorer.test_one_file import data_of
from hydra import compose, initialize_config_dir
from matplotlib.image import imsave
from small_checkpoint import SENTENCES, write_checkpoint

from seq2seq_attn.checkpoint import average, export_safetensors
from seq2seq_attn.checkpoint.published import without_folders
from seq2seq_attn.comparison import export_hub as script
from seq2seq_attn.comparison.export_hub import card_options, chosen_maps, command_of, export
from seq2seq_attn.comparison.model_card import OPTIONS, Known, card, papers
from seq2seq_attn.distributed.sweep_job import job_arguments
from seq2seq_attn.errors import UserError
from seq2seq_attn.evaluation.evaluate import evaluate
from seq2seq_attn.explorer.explore import explore
from seq2seq_attn.inference.translator import Translator
from seq2seq_attn.markdown import literal

pytestmark = pytest.mark.usefixtures("quiet")
PUBLISHED = {"model.safetensors", "config.json", "source.model", "target.model"}
ALONE = PUBLISHED | {"README.md", "training.yaml"}


@pytest.fixture(scope="module")
def run(learned_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run, with an attention map of its best validation."""
    folder = Path(shutil.copytree(learned_run, tmp_path_factory.mktemp("hub") / "run"))
    step = load_step(folder)
    maps = folder / "attention_maps" / f"step_{step:06d}"
    maps.mkdir(parents=True, exist_ok=True)
    for name in ("cross_0_0", "cross_1_0", "cross_1_1", "self_1_0"):
        imsave(maps / f"{name}.png", np.full((2, 3), len(name)))
    (maps / "cross_1_2.png").symlink_to("/etc/hostname")
    return folder


def load_step(folder: Path) -> int:
    from seq2seq_attn.checkpoint.load import read_checkpoint

    return int(read_checkpoint(folder / "checkpoints" / "best.ckpt")["global_step"])


@pytest.fixture(scope="module")
def exported(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "mon modèle (2)"
    folder.mkdir()  # an empty one is taken
    script.main(
        [str(run), str(folder), "licence=cc-by-4.0", "author=A. Author", "dataset=clauses", "use=Tests | only."]
    )
    return folder


def front_matter(folder: Path) -> dict[str, Any]:
    head, _, _ = (folder / "README.md").read_text("utf-8").removeprefix("---\n").partition("\n---\n")
    return yaml.safe_load(head)


@pytest.mark.slow
def test_the_folder_translates_is_evaluated_and_explored_as_the_run_is(
    run: Path, exported: Path, tmp_path: Path
) -> None:
    moved = Path(shutil.copytree(exported, tmp_path / "another machine"))
    sources = ["The cat sees water.", "She likes a bird."]
    texts = [[t.text for t in Translator.load(path, device="cpu").translate(sources)] for path in (run, moved)]
    assert texts[0] == texts[1]

    with initialize_config_dir(str(CONF), version_base="1.3"):
        data = (run.parent / "pairs.tsv").as_posix()
        Path(data).write_text("The cat sees water.\tLe chat voit de l'eau.\n", "utf-8")
        given = ["data=parallel", f"data.test={data}", "choices.data=null", "num_threads=1"]
        for path in (run, moved):
            evaluate(compose("evaluate", [f"ckpt_path='{path}'", *given, f"paths.run_dir='{tmp_path / path.name}'"]))
        (tmp_path / "lines.txt").write_text("She sees water.\n", "utf-8")
        page = [f"input={tmp_path / 'lines.txt'}", "device=cpu"]
        views = [
            compose("explore", [f"ckpt_path='{path}'", f"page='{tmp_path / path.name}.html'", *page])
            for path in (run, moved)
        ]
    for view in views:
        explore(view)
    scores = [json.loads((tmp_path / path.name / "evaluation.json").read_text()) for path in (run, moved)]
    assert scores[0]["splits"]["test"]["loss"] == scores[1]["splits"]["test"]["loss"]
    pages = [data_of((tmp_path / f"{path.name}.html").read_text("utf-8")) for path in (run, moved)]
    assert [look["source"]["text"] for look in pages[1]["looks"]] == ["She sees water."]
    looks = [[look | {"seconds": 0.0} for look in page["looks"]] for page in pages]
    assert looks[1] == looks[0]


def test_the_front_matter_holds_the_metrics_with_their_signatures(run: Path, exported: Path) -> None:
    found, results = front_matter(exported), json.loads((run / "results.json").read_text())
    assert (found["license"], found["library_name"], found["pipeline_tag"]) == (
        "cc-by-4.0", "seq2seq-attn", "translation",
    )  # fmt: skip
    assert found["language"] == ["en", "fr"]
    assert found["datasets"] == ["clauses"]
    (evaluation,) = found["model-index"][0]["results"]
    assert evaluation["dataset"] == {"name": "clauses", "type": "clauses", "split": "test"}
    metrics = {metric["type"]: metric for metric in evaluation["metrics"]}
    assert list(metrics) == found["metrics"]
    assert metrics["bleu"]["value"] == round(results["test/bleu"], 2)
    assert metrics["bleu"]["args"] == {"signature": results["test/bleu_signature"]}


def test_the_card_has_its_sections_and_pictures_and_every_link_leads_to_a_file(run: Path, exported: Path) -> None:
    text = (exported / "README.md").read_text("utf-8")
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings == [
        "Intended use", "Risks and limits", "Data", "Training", "Results", "Curves and attention maps",
        "How to use it", "How to cite it",
    ]  # fmt: skip
    assert r"Tests \| only." in text
    linked = set(re.findall(r"\]\(([^)]+)\)", text))
    assert linked == {"loss.png", "score.png", "attention_0.png", "attention_1.png", "training.yaml"}
    assert {file.name for file in exported.iterdir()} == PUBLISHED | {"README.md"} | linked
    maps = run / "attention_maps" / f"step_{load_step(run):06d}"
    assert (exported / "attention_1.png").read_bytes() == (maps / "cross_1_1.png").read_bytes()
    assert """ckpt_path='"mon modèle (2)"' input=FILE""" in text
    assert "author = {A. Author}" in text
    results = json.loads((run / "results.json").read_text())
    assert f"{results['num_parameters']:,}" in text
    assert f"`{results['test/chrf_signature']}`" in text
    rows = dict(re.findall(r"^([\w ]+) \| (.+)$", text, re.MULTILINE))
    recorded = json.loads((run / "provenance.json").read_text())
    assert rows["platform"] == literal(recorded["platform"])
    assert (rows["device"], rows["devices"], rows["CPU threads"], rows["precision"]) == ("cpu", "1", "1", "32-true")
    assert "It was fine-tuned" not in text
    assert "None" not in text


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({"data": {"_target_": "os.mkdir", "path": "ran"}}, "asks for os.mkdir, which is not a class .+ for data"),
        ({"search": {"_target_": "os.mkdir", "path": "ran"}}, "asks for os.mkdir, which is not a class .+ for search"),
        ({"search": {"_target_": "seq2seq_attn.errors.UserError"}}, "which is not a class of seq2seq_attn for search"),
    ],
)
def test_a_stranger_s_folder_runs_no_code(
    change: dict[str, Any], refused: str, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path(shutil.copytree(exported, tmp_path / "stranger"))
    settings = json.loads((folder / "config.json").read_text("utf-8"))
    settings["config"] |= {key: settings["config"][key] | value for key, value in change.items()}
    (folder / "config.json").write_text(json.dumps(settings), "utf-8")
    with pytest.raises(UserError, match=refused):
        Translator.load(folder, device="cpu")
    assert not (tmp_path / "ran").exists()


def test_a_stranger_s_folder_reads_no_file_that_its_options_name_and_writes_through_no_link(
    exported: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(exported, tmp_path / "stranger"))
    fifo = tmp_path / "secret.txt"
    os.mkfifo(fifo)  # whoever opens it waits for ever
    settings = json.loads((folder / "config.json").read_text("utf-8"))
    settings["config"]["model"] |= {"source_embedding_file": str(fifo)}
    settings["config"]["data"] |= {"path": str(fifo), "cache_dir": str(fifo)}
    (folder / "config.json").write_text(json.dumps(settings), "utf-8")
    (folder / "training.yaml").unlink()
    (folder / "training.yaml").symlink_to(fifo)
    texts = [t.text for t in Translator.load(folder, device="cpu").translate(SENTENCES)]
    assert texts == [t.text for t in Translator.load(exported, device="cpu").translate(SENTENCES)]

    secret = tmp_path / "secret.key"
    secret.write_text("the key is 1234")
    for name in ("source.model", "config.json", "model.safetensors"):
        (folder / name).rename(tmp_path / name)
        (folder / name).symlink_to(secret)
        with pytest.raises(UserError) as found:
            Translator.load(folder, device="cpu")
        assert "1234" not in str(found.value)
        assert secret.read_text() == "the key is 1234"
        (folder / name).unlink()
        (tmp_path / name).rename(folder / name)


def test_the_command_of_a_job_trains_it_alone_and_not_its_sweep() -> None:
    for typed, job in (
        (["-m", "seed=1,2"], ["data=demo", "seed=2"]),
        (["sweep=optuna"], ["sweep=optuna", "optimized_metric=val/loss", "data=demo", "seed=2", "parent=run"]),
    ):
        words = ["/x/train.py", *job_arguments(typed, job)]  # what provenance.json of the job has
        assert command_of(words) == "python train.py data=demo seed=2"


def test_no_folder_of_this_machine_is_named(exported: Path) -> None:
    files = [file for file in exported.iterdir() if file.suffix in (".md", ".yaml", ".json")]
    assert len(files) == 3
    for file in files:
        assert not re.search(r"/(tmp|home|root|work|usr)/", file.read_text("utf-8")), file
    words = ["/x/train.py", "data.train=[/home/me/a.en,~/b.fr]", "hydra.run.dir=/y/z", "init_from.run=/m/n", "a.b=c/d"]
    assert command_of(words) == "python train.py 'data.train=[a.en,b.fr]' init_from.run=n a.b=c/d"
    for word, left in (
        ("data.train=//home/me/a.tsv", "data.train=a.tsv"),
        ("data.train='/home/me/Smith, John/a.tsv'", "data.train=a.tsv"),
        ('data.train="/home/o\'brien/[old]/a b.tsv"', """'data.train="a b.tsv"'"""),
        ("+data.train=['/home/Smith, John/a.en',/home/b.fr,null]", "'+data.train=[a.en,b.fr,null]'"),
        ("data.corpora={x:{train:/home/me/a.tsv,weight:2.5},y:3}", "'data.corpora={x:{train:a.tsv,weight:2.5},y:3}'"),
        ("data.path=/home/me/2019", """'data.path="2019"'"""),
        ("data.path=/home/me/true", """'data.path="true"'"""),
        ('tokenizer.user_defined_symbols=["/n/"]', """'tokenizer.user_defined_symbols=["/n/"]'"""),
        ("data.train=/home/me/[old", "'data.train=[old'"),
        ("model.dropout=0.1", "model.dropout=0.1"),
        ("data.train=/home/me/a,/home/me/b", "data.train=a,b"),
    ):
        assert command_of(["/x/train.py", word]) == f"python train.py {left}", word
    secret = "tracking_uri=https://user:secret@host/x"
    of_machine = [
        f"logger.mlflow.{secret}", f"+logger.mlflow.{secret}", f"++logger.mlflow.{secret}", "~logger", "logger=mlflow",
        "logger@logger.x=mlflow", "+paths.data_dir=/a/b", "hydra/launcher=joblib", "+hydra.job.name=x", "resume=auto",
        "ckpt_path=/a/b", "+paths/mine=x",
    ]  # fmt: skip
    assert command_of(["/x/train.py", *of_machine, "resumes=1", "+a/b=c"]) == "python train.py resumes=1 +a/b=c"
    assert command_of(["/x/seq2seq_attn/cli/train.py", "seed=3"]) == "seq2seq-attn train seed=3"
    assert without_folders({"tokenizer": {"user_defined_symbols": ["/n/"]}}) == {
        "tokenizer": {"user_defined_symbols": ["/n/"]}
    }
    assert without_folders({"a": ["/b/c", 1], "url": "https://d.org/e"}) == {"a": ["c", 1], "url": "https://d.org/e"}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("file:///home/me/x", "file://x"),
        ("sqlite:////home/me/a.db", "sqlite://a.db"),
        ("(/home/me/x)", "(x)"),
        ("{/home/me/x}", "{x}"),
        ("[/home/me/x,~me/y]", "[x,y]"),
        ("/home/it's me/x y", "x y"),
        ("~/it's/x", "x"),
        ("a|/home/me/x", "a|x"),
        ("x=+/home/me/y", "x=+y"),
        ("https://me:secret@d.org/e", "https://d.org/e"),
        ("runs/train/x", "runs/train/x"),
        ("https://d.org/e/f", "https://d.org/e/f"),
        ("a / b", "a / b"),
        ("/", "/"),
    ],
)
def test_the_folders_of_an_absolute_path_are_left_out_in_every_form(text: str, left: str) -> None:
    assert without_folders({"a": [text]}) == {"a": [left]}


def test_the_published_options_name_no_folder_of_a_metric(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "model.ckpt")
    aer = {"_target_": "seq2seq_attn.metric.aer.AER", "gold": "/home/me/a.gold", "pairs": ["/home/me/a", "~/b"]}
    checkpoint["config"]["metric"] = {"aer": aer, "comet": {"command": "/home/me/bin/comet-score"}}
    torch.save(checkpoint, tmp_path / "model.ckpt")
    export(str(tmp_path / "model.ckpt"), tmp_path / "out", {})
    metrics = json.loads((tmp_path / "out" / "config.json").read_text("utf-8"))["config"]["metric"]
    assert metrics == {"aer": aer | {"gold": "a.gold", "pairs": ["a", "b"]}, "comet": {"command": "comet-score"}}


def test_a_checkpoint_alone_is_exported_and_what_is_not_known_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "model.ckpt"
    write_checkpoint(file)
    export(str(file), tmp_path / "alone", {})
    assert {path.name for path in (tmp_path / "alone").iterdir()} == ALONE
    text = (tmp_path / "alone" / "README.md").read_text("utf-8")
    assert re.findall(r"^##? (.+)$", text, re.MULTILINE) == [
        "alone", "Risks and limits", "Training", "How to use it", "How to cite it",
    ]  # fmt: skip
    assert {"license", "datasets", "metrics", "model-index"} & front_matter(tmp_path / "alone").keys() == set()
    assert len(Translator.load(tmp_path / "alone", device="cpu").translate(SENTENCES)) == len(SENTENCES)


def test_the_card_of_an_average_says_so(tmp_path: Path) -> None:
    for number in (1, 2):
        write_checkpoint(tmp_path / f"{number}.ckpt")
    average.main([*map(str, sorted(tmp_path.glob("*.ckpt"))), "--output", str(tmp_path / "average.ckpt")])
    for name, says_so in (("average", True), ("1", False)):
        export(str(tmp_path / f"{name}.ckpt"), tmp_path / name, {})
        text = (tmp_path / name / "README.md").read_text("utf-8")
        assert ("Its weights are the average of 2 checkpoints.\n" in text) == says_so


def test_sentences_stay_in_the_run_folder_without_log_text(run: Path, tmp_path: Path) -> None:
    from seq2seq_attn.checkpoint.checkpoint_file import write_checkpoint as write
    from seq2seq_attn.checkpoint.load import read_checkpoint

    secret = Path(shutil.copytree(run, tmp_path / "secret", symlinks=True))
    checkpoint = read_checkpoint(secret / "checkpoints" / "best.ckpt")
    checkpoint["config"]["log_text"] = False
    write(checkpoint, secret / "checkpoints" / "best.ckpt")
    export(str(secret), tmp_path / "out", {})
    assert not list((tmp_path / "out").glob("attention_*"))
    first = (run / "translations.tsv").read_text("utf-8").partition("\t")[0]
    assert first not in (tmp_path / "out" / "README.md").read_text("utf-8")


def test_scores_are_left_out_where_they_are_another_checkpoint_s(run: Path, tmp_path: Path) -> None:
    export(str(run / "checkpoints" / "last.ckpt"), tmp_path / "last", {})
    assert "## Results" not in (tmp_path / "last" / "README.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["license=mit"], r"^'license=mit' is no option of a model card; did you mean licence=\.\.\.\?$"),
        (["cc0"], r"^'cc0' is no option of a model card; choose from: title=, licence="),
        (["title="], r"^title= has no value; give title=TEXT$"),
        (["use=a", "use=b"], r"^use= is given twice; give it once$"),
    ],
)
def test_an_option_that_the_card_does_not_have_is_refused(words: list[str], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        card_options(words)


def test_the_options_may_be_left_out_but_not_the_run_or_the_folder(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for words, said in (
        ([run, "licence=mit"], "FOLDER is missing before licence=mit; give a new or an empty folder after RUN\n"),
        ([run, "license=mit", "use=x"], "FOLDER is missing before license=mit; give a new or an empty folder"),
        ([tmp_path / "no", "out"], f"RUN={tmp_path / 'no'} does not exist; give a run folder"),
        ([], "the following arguments are required: run, folder\n"),
    ):
        with pytest.raises(SystemExit, match="2"):
            script.main([str(word) for word in words])
        assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_folder_with_files_and_a_damaged_file_are_refused_before_anything_is_written(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(SystemExit, match="2"):
        script.main([str(run), str(tmp_path / "full")])
    assert capsys.readouterr().err == f"{tmp_path / 'full'} is not empty; give a new or an empty folder\n"
    assert [file.name for file in (tmp_path / "full").iterdir()] == ["mine.txt"]
    broken = Path(shutil.copytree(run, tmp_path / "broken", symlinks=True))
    (broken / "results.json").write_text("{")
    with pytest.raises(UserError, match=r"results.json is damaged; move it away, and the card is written without it$"):
        export(str(broken), tmp_path / "new", {})
    assert {path.name for path in tmp_path.iterdir()} == {"full", "broken"}


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("results.json", {"num_parameters": "many"}),
        ("results.json", {"train_seconds": [1]}),
        ("provenance.json", {"command": [1, None]}),
        ("provenance.json", {"command": 7}),
        ("provenance.json", {"data_report": [1]}),
        ("provenance.json", {"versions": "1.2"}),
        ("provenance.json", {"init_from": 7}),
        ("provenance.json", {"init_from": {"path": 7}}),
    ],
)
def test_a_file_of_wrong_types_is_one_sentence_and_nothing_is_written(
    file: str, change: dict[str, Any], run: Path, tmp_path: Path
) -> None:
    broken = Path(shutil.copytree(run, tmp_path / "broken", symlinks=True))
    (broken / file).write_text(json.dumps(json.loads((broken / file).read_text()) | change))
    sentence = r"^results.json or provenance.json of .+broken is damaged \(.+\); move it away, and the card is written"
    with pytest.raises(UserError, match=sentence):
        export(str(broken), tmp_path / "new", {})
    assert [path.name for path in tmp_path.iterdir()] == ["broken"]


def test_a_disk_that_fills_up_leaves_no_part_of_the_folder(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(script, "draw", full)
    (tmp_path / "empty").mkdir()
    for name in ("new", "empty"):
        sentence = (
            rf"^{tmp_path / name} cannot be written \(No space left on device\); make room, or give another folder$"
        )
        with pytest.raises(UserError, match=sentence):
            export(str(run), tmp_path / name, {})
    assert [path.name for path in tmp_path.rglob("*")] == ["empty"]


@pytest.mark.parametrize("name", ["guided_alignment", "metric", "choices", "trainer"])
def test_a_published_folder_with_options_of_wrong_types_is_one_sentence(
    name: str, exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(exported, tmp_path / "stranger"))
    settings = json.loads((folder / "config.json").read_text("utf-8"))
    settings["config"][name] = "zz"
    (folder / "config.json").write_text(json.dumps(settings), "utf-8")
    for main in (script.main, export_safetensors.main):
        with pytest.raises(SystemExit, match="2"):
            main([str(folder), str(tmp_path / "out")])
        assert f" holds no {name} among its options; give a checkpoint" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def known(*overrides: str, **fields: Any) -> Known:
    from omegaconf import OmegaConf

    config: Any = OmegaConf.to_container(
        compose_train("paths.run_dir=run", *(f"choices.{n}=null" for n in ("attention", "model", "data")), *overrides),
        resolve=True,
    )
    return Known(config, "", fields.get("results", {}), fields.get("provenance", {}), [], fields.get("examples", []))


def test_the_card_of_a_language_model_generates_and_that_of_a_pre_trained_model_is_fine_tuned() -> None:
    text = card(known("model=lm", "data=text", "choices.data=text"), {}, "folder", {})
    assert "pipeline_tag: text-generation" in text
    text = card(known("model=lm", "data=parallel", "choices.data=parallel", "choices.model=lm"), {}, "folder", {})
    assert yaml.safe_load(text.split("---")[1])["language"] == ["fr"]
    assert " to fr" not in text
    assert "search=sampling" in text
    assert "explore" not in text
    assert "datasets" not in text
    text = card(known("objective=denoising", "data=text"), {}, "folder", {})
    assert "pipeline_tag" not in text
    assert "init_from.run=folder" in text


def test_the_card_says_that_training_pairs_are_no_test_set() -> None:
    text = card(known(results={"test_train/bleu": 99.0}), {}, "folder", {})
    assert "The results under test_train are those of training pairs" in text
    assert "measured on the test sets" not in text
    assert "measured on the test sets" in card(known(results={"test/bleu": 9.0}), {}, "folder", {})


def test_the_card_of_a_fine_tuned_model_names_the_model_that_it_started_from() -> None:
    digest = "0123456789abcdef" * 4
    parent = {"path": "/home/me/runs/mine/checkpoints/best.ckpt", "sha256": digest, "step": 1575}
    text = card(known(provenance={"init_from": parent}), {}, "folder", {})
    assert f"from the weights of `mine` after 1,575 updates, SHA-256 `{digest}`." in text
    assert "base_model" not in text  # which is a name of a hub
    assert "/home" not in text
    published = {"path": "/home/me/opus/model.safetensors", "sha256": digest, "step": None}
    text = card(known(provenance={"init_from": published}), {"base": "someone/model"}, "folder", {})
    assert f"from the weights of `someone/model`, SHA-256 `{digest}`." in text
    assert "\nbase_model: someone/model\n" in text
    alone = known()  # a .ckpt file outside its run folder has the options alone
    alone.config["init_from"]["run"] = "runs/mine/checkpoints/best.ckpt"
    assert "from the weights of `mine`.\n" in card(alone, {}, "folder", {})
    for path, name in (("/home/me/opus/model.safetensors", "opus"), ("/home/me/model.ckpt", "model.ckpt")):
        text = card(known(provenance={"init_from": published | {"path": path}}), {}, "folder", {})
        assert f"from the weights of `{name}`, SHA-256" in text


def test_the_card_names_the_risks_that_are_known_of_the_data() -> None:
    text = card(known("data.source_language=en", "data.target_language=fr"), {"limits": "Not for law."}, "folder", {})
    section = text.partition("## Risks and limits\n\n")[2].partition("\n\n")[0]
    assert section.splitlines() == [
        "- Not for law.",
        "- It translates from `en` to `fr` only.",
        "- Its output can be wrong and still read well; a person must check whatever matters.",
        "- It learned from its training data alone, so it can repeat errors and prejudices of that text, and is less "
        "reliable on other kinds of text.",
        "- Lines of more than 100 words were left out of its training.",
        "- No measurement of its quality is known.",
    ]


@pytest.mark.parametrize(
    ("overrides", "task", "title"),
    [
        (["metric=[bleu,rouge]"], "translation", "rnn with bahdanau attention, en to fr"),
        (["metric=[chrf]"], "translation", "rnn with bahdanau attention, en to fr"),
        (["metric=[]"], "translation", "rnn with bahdanau attention, en to fr"),
        (["metric=[rouge]"], "", "rnn with bahdanau attention"),
        (["data.source_language=article", "data.target_language=title"], "", "rnn with bahdanau attention"),
        (["data.target_language=en"], "", "rnn with bahdanau attention, en"),
    ],
)
def test_the_card_names_a_translation_only_where_languages_and_metrics_tell_it(
    overrides: list[str], task: str, title: str
) -> None:
    given = known(*overrides, "choices.model=rnn", "choices.attention=bahdanau")
    text = card(given, {}, "folder", {})
    head = yaml.safe_load(text.split("---\n")[1])
    assert head.get("pipeline_tag", "") == task
    assert head.get("language", []) == (["en", "fr"] if task else ["en"] if title.endswith(", en") else [])
    assert f"\n# {title}\n" in text
    assert ("translates from" in text) == bool(task)
    assert "pipeline_tag: summarization\n" in card(given, {"task": "summarization"}, "folder", {})
    one = card(known("data.source_language=en", "data.target_language=en"), {"task": "translation"}, "folder", {})
    assert "only." not in one
    mixed = card(known("choices.data=mixture"), {}, "folder", {})
    assert "A model that translates from" in mixed
    assert "only." not in mixed


def test_text_of_a_stranger_s_run_is_no_markup_and_ends_no_front_matter() -> None:
    hostile = known(
        "choices.attention='<b>x</b>\n---\n# y'",
        "choices.model=rnn",
        provenance={"commit": "[a](http://b)", "data_report": {}},
        examples=[("a | b", "```", "<script>")],
        results={"test/loss": 1.0},
    )
    text = card(hostile, {}, "folder", {"loss.png": "![x](y)"})
    assert text.count("\n---\n") == 1
    assert yaml.safe_load(text.split("\n---\n")[0])["tags"][-1].startswith("<b>x</b>")
    assert "<script>" not in text.split("\n---\n")[1]
    assert "[a](http" not in text
    assert "\n```\n|" not in text
    assert not re.search(r"^# y", text, re.MULTILINE)


def test_a_part_of_a_stranger_s_attention_is_not_imported_for_its_paper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hostile.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Score: ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    hostile = known("model=rnn", "attention=bahdanau")
    attention = hostile.config["model"]["decoder"]["attention"]
    assert "additive" in papers(hostile)[0].lower()
    attention["score"] = {"_target_": "hostile.Score"}
    assert "hostile" not in "".join(papers(hostile))
    assert not (tmp_path / "ran").exists()


def test_an_attention_layer_of_its_own_is_named_and_cited() -> None:
    text = card(known("model=transformer", "attention=delta"), {}, "folder", {})
    assert re.search(r"decoder\.self_attention \| DeltaAttention$", text, re.MULTILINE)
    assert re.search(r"decoder\.cross_attention \| \w+Score · ", text)
    assert "\n- Delta rule: " in text


def test_help_lists_the_options_of_the_card(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        script.main(["--help"])
    said = capsys.readouterr().out
    assert all(f"  {name}=" in said for name in OPTIONS)


def test_no_picture_behind_a_link_is_published(tmp_path: Path) -> None:
    maps = tmp_path / "elsewhere" / "step_000010"
    maps.mkdir(parents=True)
    imsave(maps / "cross_0_0.png", np.full((2, 3), 1.0))
    assert set(chosen_maps(maps)) == {"attention_0.png"}
    (tmp_path / "step").symlink_to(maps)
    (tmp_path / "maps").symlink_to(tmp_path / "elsewhere")
    assert not chosen_maps(tmp_path / "step")
    assert not chosen_maps(tmp_path / "maps" / "step_000010")
    (maps / "cross_0_0.png").unlink()
    os.mkfifo(maps / "cross_0_0.png")
    assert not chosen_maps(maps)
