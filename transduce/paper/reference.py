"""The paper's own numbers (Vaswani et al., 2017, tables 1 to 4), to stand beside ours."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LayerType:
    """A row of Table 1: how a layer type grows with the length n and the width d."""

    name: str
    complexity: str
    sequential_operations: str
    maximum_path: str
    exponent_n: float  # of n in the complexity
    exponent_d: float  # of d in the complexity


TABLE_1 = {
    "self-attention": LayerType("Self-attention", "O(n² d)", "O(1)", "O(1)", 2, 1),
    "recurrent": LayerType("Recurrent", "O(n d²)", "O(n)", "O(n)", 1, 2),
    "convolutional": LayerType("Convolutional", "O(k n d²)", "O(1)", "O(log_k n)", 1, 2),
    "restricted": LayerType("Self-attention (restricted)", "O(r n d)", "O(1)", "O(n/r)", 1, 1),
}


@dataclass(frozen=True)
class System:
    """A row of Table 2: BLEU on newstest2014 English-German, and training cost in FLOPs."""

    bleu: float | None
    flops: float | None


TABLE_2 = {
    "ByteNet": System(23.75, None),
    "GNMT + RL": System(24.6, 2.3e19),
    "ConvS2S": System(25.16, 9.6e18),
    "MoE": System(26.03, 2.0e19),
    "GNMT + RL ensemble": System(26.30, 1.8e20),
    "ConvS2S ensemble": System(26.36, 7.7e19),
    "Transformer (base model)": System(27.3, 3.3e18),
    "Transformer (big)": System(28.4, 2.3e19),
}


@dataclass(frozen=True)
class Variation:
    """A row of Table 3, on newstest2013; the table leaves a cell empty where it equals base."""

    change: str
    perplexity: float  # per word piece
    bleu: float
    parameters: float | None = None  # in millions


TABLE_3 = {
    "base": Variation("", 4.92, 25.8, 65),
    "A-h1": Variation("h=1, d_k=d_v=512", 5.29, 24.9),
    "A-h4": Variation("h=4, d_k=d_v=128", 5.00, 25.5),
    "A-h16": Variation("h=16, d_k=d_v=32", 4.91, 25.8),
    "A-h32": Variation("h=32, d_k=d_v=16", 5.01, 25.4),
    "B-dk16": Variation("d_k=16", 5.16, 25.1, 58),
    "B-dk32": Variation("d_k=32", 5.01, 25.4, 60),
    "C-N2": Variation("N=2", 6.11, 23.7, 36),
    "C-N4": Variation("N=4", 5.19, 25.3, 50),
    "C-N8": Variation("N=8", 4.88, 25.5, 80),
    "C-dmodel256": Variation("d_model=256, d_k=d_v=32", 5.75, 24.5, 28),
    "C-dmodel1024": Variation("d_model=1024, d_k=d_v=128", 4.66, 26.0, 168),
    "C-dff1024": Variation("d_ff=1024", 5.12, 25.4, 53),
    "C-dff4096": Variation("d_ff=4096", 4.75, 26.2, 90),
    "D-drop0.0": Variation("P_drop=0.0", 5.77, 24.6),
    "D-drop0.2": Variation("P_drop=0.2", 4.95, 25.5),
    "D-ls0.0": Variation("eps_ls=0.0", 4.67, 25.3),
    "D-ls0.2": Variation("eps_ls=0.2", 5.47, 25.7),
    "E-learned": Variation("learned positions", 4.92, 25.7),
    "big": Variation("d_model=1024, d_ff=4096, h=16, P_drop=0.3, 300K steps", 4.33, 26.4, 213),
}

# Table 4: F1 on section 23 of the Wall Street Journal, trained on the WSJ alone.
TABLE_4 = {
    "Vinyals & Kaiser et al. (2014)": 88.3,
    "Petrov et al. (2006)": 90.4,
    "Zhu et al. (2013)": 90.4,
    "Dyer et al. (2016)": 91.7,
    "Transformer (4 layers)": 91.3,
}
