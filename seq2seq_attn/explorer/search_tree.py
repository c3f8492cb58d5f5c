"""A beam search as a tree: every candidate of every step, what was kept, dropped or finished."""

from __future__ import annotations

from typing import Any, final

from seq2seq_attn.search.beam import BeamSearch, BeamStep
from seq2seq_attn.search.greedy import GreedySearch
from seq2seq_attn.search.length_penalty.wu import WuPenalty
from seq2seq_attn.search.search import Search
from seq2seq_attn.tokenizer.sentencepiece import SentencePieceTokenizer

MAX_NODES = 20_000


def observable(search: Search) -> BeamSearch | None:
    """Return the beam search that does what the search does, and that a recorder can observe; None: there is none.

    Greedy search is a beam of one hypothesis that stops at its first end.
    """
    if isinstance(search, GreedySearch):
        return BeamSearch(
            beam_size=1,
            num_best=1,
            length_penalty=WuPenalty(alpha=0.0),
            coverage_penalty=0.0,
            patience=1.0,
            no_repeat_ngram=search.no_repeat_ngram,
            limits=search.limits,
        )
    return search if isinstance(search, BeamSearch) else None


@final
class TreeRecorder:
    """An observer of a beam search of one sentence, which notes the candidates of each step as nodes.

    A node is `kept` if the next step continues it, `finished` if it is the end of a hypothesis, else `dropped`: the
    step at which it is dropped is its own. What is left when the search stops is dropped too.
    """

    def __init__(self, tokenizer: SentencePieceTokenizer) -> None:
        self.tokenizer = tokenizer
        self.full = False
        self._steps: list[list[dict[str, Any]]] = []
        self._rows: list[int | None] = [None]  # node of each hypothesis of the beam; None: the root, or no hypothesis
        self.count = 0

    def __call__(self, step: BeamStep) -> None:
        if self.full or self.count + step.candidates.totals.shape[1] > MAX_NODES:
            self.full = True
            return
        totals, parents, token_ids = (field[0].tolist() for field in step.candidates)
        ends, before = step.ends[0].tolist(), step.beam.totals[0].tolist()
        width, finished = step.active.totals.shape[1], iter(step.finished)
        nodes: list[dict[str, Any]] = []
        rows: list[int | None] = []
        for rank, (total, parent, token_id) in enumerate(zip(totals, parents, token_ids, strict=True)):
            if total == -float("inf"):
                continue
            node = {
                "id": self.count,
                "parent": self._rows[parent],
                "token_id": token_id,
                "token": self.tokenizer.target_tokens([token_id])[0],
                "log_prob": total - before[parent],
                "total": total,
                "state": "dropped",
                "score": None,
                "rank": rank,
            }
            if ends[rank]:
                hypothesis = next(finished, None)  # none is left for an end after the best `beam_size`
                if hypothesis is not None:
                    node |= {"state": "finished", "score": hypothesis.score}
            elif len(rows) < width:
                node["state"] = "kept"
                rows.append(self.count)
            nodes.append(node)
            self.count += 1
        self._rows = rows + [None] * (width - len(rows))
        self._steps.append(nodes)

    def tree(self, best: list[int], eos_id: int) -> dict[str, Any]:
        """Return the nodes by step, once the search has ended, and the node at the end of its best hypothesis."""
        for node in self._steps[-1] if self._steps and not self.full else []:
            if node["state"] == "kept":
                node["state"] = "dropped"
        steps = [{"nodes": nodes} for nodes in self._steps]
        node_id: int | None = None
        for step, token_id in zip(self._steps, [*best, eos_id], strict=False):
            chosen = [node["id"] for node in step if node["parent"] == node_id and node["token_id"] == token_id]
            if not chosen:
                return {"steps": steps, "best": None}
            (node_id,) = chosen
        return {"steps": steps, "best": node_id if len(self._steps) > len(best) else None}
