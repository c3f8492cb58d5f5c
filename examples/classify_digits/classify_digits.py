"""Classify scikit-learn's digits with a small Vision Transformer, and draw what its class token attends to.

`python -m examples.classify_digits.classify_digits output_bias=true --plot maps.png`

The model of Dosovitskiy et al. 2021 (arXiv:2010.11929): an image is cut into patches, each of which is a token; a class
token precedes them, and the digit is read off it after the last layer.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq_attn.attention import SelfAttention, build_attention
from seq2seq_attn.errors import UserError, reports_user_errors
from seq2seq_attn.position.learned import LearnedPosition

SIDE, CLASSES = 8, 10  # of scikit-learn's digits
DIM, HEADS, LAYERS, BATCH = 64, 8, 4, 64
Split = tuple[Tensor, Tensor]  # images of (number, SIDE, SIDE) from 0 to 1, and their digits


class Block(nn.Module):
    """x + attention(norm x), then the same with two linear layers and a GELU between them."""

    def __init__(self, attention: SelfAttention) -> None:
        super().__init__()
        self.attention = attention
        self.attention_norm, self.linear_norm = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.linear = nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM))

    def forward(self, x: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        attended = self.attention(self.attention_norm(x), need_weights=need_weights)
        if attended.log_prob is not None:
            raise UserError(
                "this attention samples positions, which needs a term of the loss that examples/classify has and this "
                "example does not; give normalizer=hard_gumbel"
            )
        x = x + attended.context
        return x + self.linear(self.linear_norm(x)), attended.weights


class VisionTransformer(nn.Module):
    """Patches and a class token with learned positions, blocks, and a linear output of the class token."""

    def __init__(self, layers: list[SelfAttention], patch: int) -> None:
        super().__init__()
        self.patch, patches = patch, (SIDE // patch) ** 2
        self.embed = nn.Linear(patch * patch, DIM)
        self.class_token = nn.Parameter(torch.randn(DIM) * DIM**-0.5)
        self.position = LearnedPosition(dim=DIM, join="add", max_length=1 + patches)
        self.blocks = nn.ModuleList(map(Block, layers))
        self.norm, self.output = nn.LayerNorm(DIM), nn.Linear(DIM, CLASSES)

    def forward(self, images: Tensor, need_weights: bool = False) -> tuple[Tensor, list[Tensor | None]]:
        """Return logits (images, CLASSES) and the weights of each layer (images, heads, 1 + patches, 1 + patches)."""
        class_token = self.class_token.expand(len(images), 1, DIM)
        x = torch.cat([class_token, self.embed(cut(images, self.patch))], dim=1)
        x, maps = self.position(x), []
        for block in self.blocks:
            x, weights = block(x, need_weights)
            maps.append(weights)
        return self.output(self.norm(x[:, 0])), maps


def cut(images: Tensor, patch: int) -> Tensor:
    """Return patches (images, patches, pixels), row by row as the pixels of each are."""
    return images.unfold(1, patch, patch).unfold(2, patch, patch).flatten(3).flatten(1, 2)


@reports_user_errors
def main(arguments: list[str] | None = None) -> float:
    """Train, print loss and accuracy after every epoch, and return the last accuracy on the test images."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("overrides", nargs="*", help="overrides of the attention, such as output_bias=true")
    parser.add_argument("--attention", default="multihead", help="a preset of conf/attention")
    parser.add_argument("--patch", type=int, default=2, choices=[1, 2, 4], help="width of a patch, in pixels")
    parser.add_argument("--plot", type=Path, help="a PNG of the weights of the class token, in the last layer")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    if options.plot:
        options.plot.parent.mkdir(parents=True, exist_ok=True)
    training, test = read_digits(options.seed)
    torch.manual_seed(options.seed)
    layers = [
        build_attention(options.attention, *options.overrides, dim=DIM, num_heads=HEADS, layer=layer)
        for layer in range(LAYERS)
    ]
    model = VisionTransformer(layers, options.patch)
    accuracy = train(model, training, test, options.epochs)
    if options.plot:
        draw(model, test, options.plot)
    return accuracy


def read_digits(seed: int) -> tuple[Split, Split]:
    """Return 1,437 images of scikit-learn's digits for training and 360 for testing, each digit in proportion."""
    try:
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split
    except ImportError as error:
        raise UserError("the digits are in scikit-learn: pip install 'seq2seq_attn[examples]'") from error
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float) / 16
    parts = train_test_split(
        images, torch.tensor(digits.target), test_size=360, stratify=digits.target, random_state=seed
    )
    return (parts[0], parts[2]), (parts[1], parts[3])


def train(model: VisionTransformer, training: Split, test: Split, epochs: int) -> float:
    """Train with AdamW and return the accuracy on the test images after the last epoch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    accuracy = 0.0
    for epoch in range(1, epochs + 1):
        total = 0.0
        for rows in torch.randperm(len(training[1])).split(BATCH):
            logits, _ = model.train()(training[0][rows])
            loss = F.cross_entropy(logits, training[1][rows])
            total += loss.item() * len(rows)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.inference_mode():
            logits, _ = model.eval()(test[0])
        accuracy = (logits.argmax(1) == test[1]).float().mean().item()
        loss = F.cross_entropy(logits, test[1])
        print(
            f"epoch {epoch}: train loss {total / len(training[1]):.4f}, test loss {loss:.4f}, accuracy {accuracy:.2%}"
        )
    return accuracy


@torch.inference_mode()
def draw(model: VisionTransformer, test: Split, file: Path) -> None:
    """Draw the first test image of each digit and, below it, how each head of the last layer weights its patches."""
    images, digits = test
    shown = torch.stack([images[digits == digit][0] for digit in digits.unique()])
    logits, maps = model.eval()(shown, need_weights=True)
    patches = maps[-1][:, :, 0, 1:].unflatten(-1, (SIDE // model.patch, -1)).numpy()  # (images, heads, down, across)
    figure = Figure(figsize=(1 + 0.9 * len(shown), 0.4 + 0.9 * (1 + HEADS)), layout="constrained")
    grid = figure.subplots(1 + HEADS, len(shown), squeeze=False)
    edges = {"extent": (0, SIDE, SIDE, 0)}
    for column, image in enumerate(shown.numpy()):
        grid[0, column].imshow(image, cmap="gray_r", **edges)
        grid[0, column].set_title(f"read as {logits[column].argmax()}", fontsize=9)
        for head in range(HEADS):
            axes = grid[1 + head, column]
            axes.imshow(patches[column, head], cmap="magma_r", vmin=0, **edges)
            axes.contour(image, levels=[0.5], colors="tab:cyan", linewidths=0.8, **edges, origin="upper")
    for row, name in enumerate(["image", *(f"head {head}" for head in range(HEADS))]):
        grid[row, 0].set_ylabel(name)
    for axes in grid.flat:
        axes.set(xticks=[], yticks=[])
    figure.suptitle(
        "Weights of the class token in the last layer, from 0 (pale) to the largest of each map (black)", fontsize=10
    )
    figure.savefig(file, format="png", dpi=100)


if __name__ == "__main__":
    main()
