"""GRU and LSTM cells with an input in two parts: one known for all steps beforehand, one computed in each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seq2seq_attn.nn.linear import Linear
from seq2seq_attn.nn.tanh import tanh

CellState = tuple[Tensor, ...]


@final
class Cell(nn.Module):
    """A GRU or LSTM cell; its state is a tuple of (batch, hidden_dim) tensors, the first of which is its output.

    Args:
        token_dim: width of the part known beforehand (embeddings), whose gates are computed for all steps in one
            matrix product; 0: none.
        step_dim: width of the part computed in the step (the context, or the layer below); 0: none.
        cell: gru or lstm.
        hidden_dim: width of the state.
    """

    def __init__(self, *, token_dim: int, step_dim: int, cell: Literal["gru", "lstm"], hidden_dim: int) -> None:
        super().__init__()
        self.kind = KINDS[cell]
        gates = self.kind.num_gates * hidden_dim
        # The names of these two are in checkpoints.
        self.known = Linear(token_dim, gates) if token_dim else None
        self.found = Linear(step_dim, gates, bias=not token_dim) if step_dim else None
        self.recurrent = Linear(hidden_dim, gates)
        for linear in (self.known, self.found):
            if linear is not None:
                nn.init.xavier_uniform_(linear.weight)
        for linear in (self.known, self.found, self.recurrent):
            if linear is not None and linear.bias is not None:
                nn.init.zeros_(linear.bias)
        with torch.no_grad():
            for gate in self.recurrent.weight.split(hidden_dim):
                nn.init.orthogonal_(gate)

    def forward(
        self,
        token_gates: Float[Tensor, "batch gates"] | None,
        step_input: Float[Tensor, "batch step_dim"] | None,
        state: CellState,
    ) -> CellState:
        """Compute the next state; `token_gates` is the output of `self.known`."""
        gates = token_gates
        if step_input is not None:
            assert self.found is not None
            gates = self.found(step_input) if gates is None else torch.addmm(gates, step_input, self.found.weight.t())
        assert gates is not None
        return self.kind.step(gates, self.recurrent(state[0]), state)


def gru_step(
    gates: Float[Tensor, "batch gates"], recurrent: Float[Tensor, "batch gates"], state: CellState
) -> CellState:
    """Gated recurrent unit with gates reset, update, new. Cho et al. 2014, arXiv:1406.1078.

    As in cuDNN and `torch.nn.GRU`, the reset gate is applied after the recurrent product.
    """
    (hidden,) = state
    two = 2 * hidden.shape[1]
    reset, update = torch.sigmoid(gates[:, :two] + recurrent[:, :two]).chunk(2, -1)
    new = tanh(torch.addcmul(gates[:, two:], reset, recurrent[:, two:]))
    return (torch.lerp(new, hidden.to(new.dtype), update),)  # under autocast an encoder's state is in 32 bits


def lstm_step(
    gates: Float[Tensor, "batch gates"], recurrent: Float[Tensor, "batch gates"], state: CellState
) -> CellState:
    """Long short-term memory with gates input, forget, new, output. Hochreiter and Schmidhuber 1997."""
    write, keep, new, read = (gates + recurrent).chunk(4, -1)
    memory = torch.addcmul(torch.sigmoid(keep) * state[1], torch.sigmoid(write), tanh(new))
    return (torch.sigmoid(read) * tanh(memory), memory)


class Kind(NamedTuple):
    """The step function of a kind of cell, and its numbers of gates and of state tensors."""

    step: Callable[[Tensor, Tensor, CellState], CellState]
    num_gates: int
    num_states: int


KINDS = {"gru": Kind(gru_step, 3, 1), "lstm": Kind(lstm_step, 4, 2)}
