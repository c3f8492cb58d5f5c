"""A stack of recurrent layers: GRU (Cho et al. 2014, arXiv:1406.1078) or LSTM (Hochreiter and Schmidhuber 1997)."""

from __future__ import annotations

from typing import Literal, final

from jaxtyping import Float
from torch import Tensor, nn

from seq2seq_attn.decoder.cell import Cell, CellState
from seq2seq_attn.encoder.encoder import Encoded, Encoder
from seq2seq_attn.errors import UserError
from seq2seq_attn.nn.dropout import dropout
from seq2seq_attn.nn.linear import Linear
from seq2seq_attn.nn.tanh import tanh

StackState = tuple[CellState, ...]


@final
class Stack(nn.Module):
    """Recurrent layers: the first reads the embedded token and the step's own input, each other the layer below.

    Args:
        token_dim: width of the embedded token.
        step_dim: width of the input computed in each step, such as the context; 0: none.
        summary_dim: width of the encoder's summary.
        start: the first states. `summary`: tanh(W summary + b), where W reads the last states of both directions of
            the encoder; in Bahdanau et al., A.2.2, it reads the state of the backward direction alone. `states`: the
            last states of the encoder's layers, Sutskever et al. 2014.
        cell: gru or lstm.
        residual: add the input of each layer but the first to its output (Wu et al. 2016, section 3.1).
        layer_norm: normalise the output of each layer (Ba et al. 2016), but not its state.
        dropout: dropout between layers.
    """

    def __init__(
        self,
        *,
        token_dim: int,
        step_dim: int,
        summary_dim: int,
        cell: Literal["gru", "lstm"],
        hidden_dim: int,
        num_layers: int,
        residual: bool,
        layer_norm: bool,
        dropout: float,
        start: Literal["summary", "states"] = "summary",
    ) -> None:
        super().__init__()
        first = Cell(token_dim=token_dim, step_dim=step_dim, cell=cell, hidden_dim=hidden_dim)
        above = (
            Cell(token_dim=0, step_dim=hidden_dim, cell=cell, hidden_dim=hidden_dim) for _ in range(num_layers - 1)
        )
        self.first, self.above = first, nn.ModuleList(above)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden_dim) if layer_norm else nn.Identity() for _ in range(num_layers))
        self.residual = residual
        self.states_per_cell = first.kind.num_states
        self.state_dims = ((hidden_dim,) * self.states_per_cell,) * num_layers
        width = num_layers * self.states_per_cell * hidden_dim
        self.bridge = Linear(summary_dim, width) if start == "summary" else None
        self.dropout = dropout

    def check_encoder(self, encoder: Encoder) -> None:
        """Refuse an encoder whose states this stack cannot start from, if it starts from them."""
        if self.bridge is None and encoder.state_dims != self.state_dims:
            theirs, ours = (describe(dims) for dims in (encoder.state_dims, self.state_dims))
            raise UserError(
                f"model.decoder.start=states needs the same layers on both sides: the encoder has {theirs}, "
                f"the decoder {ours}; give both the same cell, dim and num_layers, or use model.decoder.start=summary"
            )

    def start(self, encoded: Encoded) -> StackState:
        """Return the state before the first token."""
        if self.bridge is None:
            return encoded.states
        per_cell = self.states_per_cell
        states = tanh(self.bridge(encoded.summary)).chunk((1 + len(self.above)) * per_cell, -1)
        return tuple(states[i : i + per_cell] for i in range(0, len(states), per_cell))

    def token_gates(
        self, embedded: Float[Tensor, "batch target token_dim"]
    ) -> tuple[Float[Tensor, "batch gates"], ...]:
        """Return the contribution of the embedded tokens to the gates of the first layer, for all steps at once."""
        assert self.first.known is not None
        return self.first.known(embedded).unbind(1)

    def forward(
        self,
        token_gates: Float[Tensor, "batch gates"] | None,
        step_input: Float[Tensor, "batch step_dim"] | None,
        state: StackState,
    ) -> tuple[Float[Tensor, "batch hidden_dim"], StackState]:
        """Step every layer; return the output of the last and the states."""
        after = [self.first(token_gates, step_input, state[0])]
        output = self.norms[0](after[0][0])
        for cell, norm, before in zip(self.above, list(self.norms)[1:], state[1:], strict=True):
            below = dropout(output, self.dropout) if self.training else output
            after.append(cell(None, below, before))
            output = norm(after[-1][0] + below if self.residual else after[-1][0])
        return output, tuple(after)


def describe(state_dims: tuple[tuple[int, ...], ...]) -> str:
    """Return what the states of recurrent layers are, for messages: `2 gru layers of width 32`."""
    if not state_dims:
        return "no recurrent layers"
    cell = "lstm" if len(state_dims[0]) == 2 else "gru"
    return f"{len(state_dims)} {cell} layer{'s' * (len(state_dims) > 1)} of width {state_dims[0][0]}"
