"""A Transformer as ONNX graphs, built node by node from its weights, without complex numbers, which runtimes lack.

Inputs and outputs have the names of Optimum and transformers.js: `encoder_model`, `decoder_model` for the first token,
`decoder_with_past_model` for later tokens, and `decoder_model_merged`, which combines both.
"""

import math
from typing import TYPE_CHECKING, Any

from seq2see.config import Model

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Weights = dict[str, NDArray[np.float32]]

OPSET, IR = 17, 8
HIDDEN = -1e9
"""Number that is added to the attention score of a masked position, so that its softmax weight is 0."""
KINDS = ("encoder_model", "decoder_model", "decoder_with_past_model", "decoder_model_merged")


class Graph:
    """Nodes and constants of a graph that is being built. Tensors are identified by name."""

    def __init__(self, prefix: str = "n") -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self._prefix = prefix

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node; return the name of its output or, if `outputs` is above 1, a list of names."""
        from onnx import helper

        names = [f"{self._prefix}{len(self.nodes)}_{number}" for number in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, value: Any, dtype: str = "int64") -> str:
        """Return the name of a constant; equal constants of at most 8 numbers are stored once."""
        import numpy as np

        array = np.asarray(value, dtype)
        name = f"c_{dtype}_{array.shape}_{array.tobytes().hex()}" if array.size < 9 else f"c{len(self.constants)}"
        return self.weight(name, array)

    def weight(self, name: str, array: Any) -> str:
        import numpy as np

        self.constants.setdefault(name, np.ascontiguousarray(array))
        return name

    def size(self, tensor: str, axis: int) -> str:
        """Return the name of a tensor with the size of an axis, as a vector of one number."""
        return str(self.op("Gather", self.op("Shape", tensor), self.constant([axis])))

    def shape(self, *sizes: "str | int") -> str:
        parts = [each if isinstance(each, str) else self.constant([each]) for each in sizes]
        return str(self.op("Concat", *parts, axis=0))


class TransformerGraph:
    """Builds the graphs of one model.

    Args:
        positions: Tables of positional encodings by side, LD; empty for rotary positions.
        turns: With rotary positions, the sines (even columns) and cosines (odd columns) of the angles, LK; else None.
        fold: Store an output layer that is tied to embeddings as a transposed copy, because quantization needs it.
    """

    def __init__(
        self,
        model: Model,
        weights: "Weights",
        positions: "dict[str, NDArray[np.float32]]",
        turns: "NDArray[np.float32] | None",
        fold: bool = False,
    ) -> None:
        self.model, self.weights, self.positions, self.turns, self.fold = model, weights, positions, turns, fold
        self.d_key = model.d_key or model.d_model // model.heads
        self.d_value = model.d_value or self.d_key

    def build(self, kind: str) -> Any:
        """Return one of the four ONNX models of `KINDS`."""
        from onnx import TensorProto, helper, numpy_helper

        self.graph = Graph()
        inputs, outputs = self._encoder() if kind == "encoder_model" else self._decoder(kind)
        types = {"ids": TensorProto.INT64, "bool": TensorProto.BOOL}

        def described(names: dict[str, tuple[Any, ...]]) -> list[Any]:
            return [
                helper.make_tensor_value_info(name, types.get(form, TensorProto.FLOAT), axes)
                for name, (form, *axes) in names.items()
            ]

        constants = [numpy_helper.from_array(array, name) for name, array in self.graph.constants.items()]
        made = helper.make_graph(self.graph.nodes, kind, described(inputs), described(outputs), constants)
        return helper.make_model(
            made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR, producer_name="seq2see"
        )

    def _encoder(self) -> tuple[dict[str, tuple[Any, ...]], dict[str, tuple[Any, ...]]]:
        g = self.graph
        x = self._embedded("source", "input_ids", g.constant([0]))
        bias = self._padding("attention_mask")
        for number in range(self.model.encoder_layers):
            name = f"encoder.{number}"

            def attend(y: str, name: str = name) -> str:
                query, key, value = self._projected(f"{name}.self_attention", y, "qkv")
                return self._attended(f"{name}.self_attention", self._turned(query), self._turned(key), value, bias)

            x = self._around(f"{name}.around_attention", x, attend)
            x = self._around(f"{name}.around_feed_forward", x, lambda y, name=name: self._feed_forward(name, y))
        if self.model.norm == "pre":
            x = self._norm("encoder_norm", x)
        g.nodes[-1].output[0] = "last_hidden_state"
        inputs = {"input_ids": ("ids", "batch", "source"), "attention_mask": ("ids", "batch", "source")}
        return inputs, {"last_hidden_state": ("float", "batch", "source", self.model.d_model)}

    def _decoder(self, kind: str) -> tuple[dict[str, tuple[Any, ...]], dict[str, tuple[Any, ...]]]:
        g, model = self.graph, self.model
        merged, with_past = kind == KINDS[3], kind != KINDS[1]
        inputs: dict[str, tuple[Any, ...]] = {"encoder_attention_mask": ("ids", "batch", "source")}
        inputs |= {"input_ids": ("ids", "batch", "target")}
        if merged or not with_past:
            inputs["encoder_hidden_states"] = ("float", "batch", "source", model.d_model)
        outputs: dict[str, tuple[Any, ...]] = {"logits": ("float", "batch", "target", self.weights_of_output.shape[0])}
        past = g.size("past_key_values.0.decoder.key", 2) if with_past else g.constant([0])
        x = self._embedded("target", "input_ids", past)
        across, causal = self._padding("encoder_attention_mask"), self._causal()
        for number in range(model.decoder_layers):
            name, kept = f"decoder.{number}", f"past_key_values.{number}"
            for part, length, width in self._kept():
                if with_past:
                    inputs[f"{kept}.{part}"] = ("float", "batch", model.heads, f"past_{length}", width)
                if part.startswith("decoder") or merged or not with_past:
                    outputs[f"present.{number}.{part}"] = ("float", "batch", model.heads, length, width)

            def attend(y: str, name: str = name, kept: str = kept, number: int = number) -> str:
                query, key, value = self._projected(f"{name}.self_attention", y, "qkv")
                query, key = self._turned(query), self._turned(key)
                if with_past:
                    key = g.op("Concat", f"{kept}.decoder.key", key, axis=2)
                    value = g.op("Concat", f"{kept}.decoder.value", value, axis=2)
                self._present(number, "decoder", key, value)
                return self._attended(f"{name}.self_attention", query, key, value, causal)

            def look_across(y: str, name: str = name, kept: str = kept, number: int = number) -> str:
                (query,) = self._projected(f"{name}.cross_attention", y, "q")
                if merged:
                    key, value = self._either(name, kept)
                elif with_past:
                    key, value = f"{kept}.encoder.key", f"{kept}.encoder.value"
                else:
                    key, value = self._projected(f"{name}.cross_attention", "encoder_hidden_states", "kv")
                if merged or not with_past:
                    self._present(number, "encoder", key, value)
                return self._attended(f"{name}.cross_attention", query, key, value, across)

            x = self._around(f"{name}.around_self", x, attend)
            x = self._around(f"{name}.around_cross", x, look_across)
            x = self._around(f"{name}.around_feed_forward", x, lambda y, name=name: self._feed_forward(name, y))
        if model.norm == "pre":
            x = self._norm("decoder_norm", x)
        self._logits(x)
        if merged:
            inputs["use_cache_branch"] = ("bool", 1)
        return inputs, outputs

    def _kept(self) -> list[tuple[str, str, int]]:
        """Return the cached tensors of a layer: name, positions (`all` so far, or the `source`), width of a head."""
        return [
            (f"{side}.{part}", "all" if side == "decoder" else "source", self.d_key if part == "key" else self.d_value)
            for side in ("decoder", "encoder")
            for part in ("key", "value")
        ]

    def _present(self, number: int, side: str, key: str, value: str) -> None:
        from onnx import helper

        for part, tensor in (("key", key), ("value", value)):
            self.graph.nodes.append(helper.make_node("Identity", [tensor], [f"present.{number}.{side}.{part}"]))

    def _either(self, name: str, kept: str) -> tuple[str, str]:
        """Return keys and values of the encoder output, computed in the first step and then read from the cache.

        Args:
            name: Name of the decoder layer.
            kept: Beginning of the names of its cached tensors.
        """
        from onnx import TensorProto, helper

        outer = self.graph
        branches = []
        for first in (True, False):
            self.graph = Graph(f"{name}.{'else' if first else 'then'}_")
            self.graph.constants = outer.constants
            if first:
                found = self._projected(f"{name}.cross_attention", "encoder_hidden_states", "kv")
            else:
                found = [self.graph.op("Identity", f"{kept}.encoder.{part}") for part in ("key", "value")]
            described = [helper.make_tensor_value_info(each, TensorProto.FLOAT, [None] * 4) for each in found]
            branches.append(helper.make_graph(self.graph.nodes, f"{name}.{first}", [], described))
        self.graph = outer
        key, value = outer.op("If", "use_cache_branch", outputs=2, else_branch=branches[0], then_branch=branches[1])
        return key, value

    def _embedded(self, side: str, ids: str, first: str) -> str:
        """Return embeddings with positions from `first` on; with rotary positions, store the sines and cosines that
        attention needs.
        """
        g = self.graph
        table = f"{side}_embedding.tokens.weight"
        table = table if table in self.weights else "source_embedding.tokens.weight"
        x = g.op("Gather", g.weight(table, self.weights[table]), ids)
        x = g.op("Mul", x, g.constant(math.sqrt(self.model.d_model), "float32"))
        last = g.op("Add", first, g.size(ids, 1))
        self._first, self._last = first, last
        if side in self.positions:
            waves = g.weight(f"{side}_positions", self.positions[side])
            x = g.op("Add", x, g.op("Slice", waves, first, last, g.constant([0])))
        if self.turns is not None:
            cosines = g.weight("cosines", self.turns[:, 1::2, None])
            sines = g.weight("sines", self.turns[:, 0::2, None])
            self._cosine, self._sine = (
                g.op("Slice", table, first, last, g.constant([0])) for table in (cosines, sines)
            )
        return str(x)

    def _scalar(self, one: str) -> str:
        return str(self.graph.op("Squeeze", one, self.graph.constant([0])))

    def _padding(self, mask: str) -> str:
        """Return the padding mask B11S: 0 for source tokens, `HIDDEN` for padding."""
        g = self.graph
        kept = g.op("Unsqueeze", g.op("Cast", mask, to=1), g.constant([1, 2]))
        return str(g.op("Mul", g.op("Sub", g.constant(1, "float32"), kept), g.constant(HIDDEN, "float32")))

    def _causal(self) -> str:
        """Return the causal mask LM, new positions by all positions: `HIDDEN` where the column is later, else 0."""
        g = self.graph
        columns = g.op("Range", g.constant(0), self._scalar(self._last), g.constant(1))
        rows = g.op("Range", self._scalar(self._first), self._scalar(self._last), g.constant(1))
        later = g.op("Greater", g.op("Unsqueeze", columns, g.constant([0])), g.op("Unsqueeze", rows, g.constant([1])))
        return str(g.op("Mul", g.op("Cast", later, to=1), g.constant(HIDDEN, "float32")))

    def _linear(self, x: str, name: str, rows: slice = slice(None), mark: str = "") -> str:
        g = self.graph
        weight = g.weight(f"{name}.weight{mark}", self.weights[f"{name}.weight"][rows].T)
        bias = g.weight(f"{name}.bias{mark}", self.weights[f"{name}.bias"][rows])
        return str(g.op("Add", g.op("MatMul", x, weight), bias))

    def _projected(self, name: str, x: str, which: str) -> list[str]:
        """Return those of queries, keys and values that `which` (a part of "qkv") names, BHLK each."""
        g, H = self.graph, self.model.heads
        widths = {"q": self.d_key, "k": self.d_key, "v": self.d_value}
        begins = {"q": 0, "k": H * self.d_key, "v": 2 * H * self.d_key}
        found = []
        for part in which:
            width = widths[part]
            y = self._linear(x, f"{name}.w_qkv", slice(begins[part], begins[part] + H * width), f".{part}")
            y = g.op("Reshape", y, g.constant([0, 0, H, width]))
            found.append(g.op("Transpose", y, perm=[0, 2, 1, 3]))
        return found

    def _turned(self, x: str) -> str:
        """Rotate each pair of columns by its angle, in real numbers; unchanged if positions are not rotary."""
        if self.turns is None:
            return x
        g = self.graph
        pairs = g.op("Reshape", x, g.constant([0, 0, 0, self.d_key // 2, 2]))
        real, imaginary = g.op("Split", pairs, g.constant([1, 1]), outputs=2, axis=4)
        turned = [
            g.op("Sub", g.op("Mul", real, self._cosine), g.op("Mul", imaginary, self._sine)),
            g.op("Add", g.op("Mul", real, self._sine), g.op("Mul", imaginary, self._cosine)),
        ]
        return str(g.op("Reshape", g.op("Concat", *turned, axis=4), g.constant([0, 0, 0, self.d_key])))

    def _attended(self, name: str, query: str, key: str, value: str, bias: str) -> str:
        g = self.graph
        scores = g.op("MatMul", query, g.op("Transpose", key, perm=[0, 1, 3, 2]))
        scores = g.op("Add", g.op("Mul", scores, g.constant(self.d_key**-0.5, "float32")), bias)
        mixed = g.op("Transpose", g.op("MatMul", g.op("Softmax", scores, axis=-1), value), perm=[0, 2, 1, 3])
        mixed = g.op("Reshape", mixed, g.constant([0, 0, self.model.heads * self.d_value]))
        return self._linear(mixed, f"{name}.w_o")

    def _feed_forward(self, name: str, x: str) -> str:
        inner = self._linear(x, f"{name}.feed_forward.w_1")
        return self._linear(self._activated(inner), f"{name}.feed_forward.w_2")

    def _activated(self, x: str) -> str:
        g = self.graph
        if self.model.activation == "relu":
            return str(g.op("Relu", x))
        if self.model.activation == "silu":
            return str(g.op("Mul", x, g.op("Sigmoid", x)))
        cumulative = g.op("Erf", g.op("Mul", x, g.constant(math.sqrt(0.5), "float32")))
        cumulative = g.op("Add", cumulative, g.constant(1, "float32"))
        return str(g.op("Mul", g.op("Mul", x, cumulative), g.constant(0.5, "float32")))

    def _around(self, name: str, x: str, sublayer: Any) -> str:
        """Return norm(x + sublayer(x)) with post-norm, x + sublayer(norm(x)) with pre-norm."""
        if self.model.norm == "pre":
            return str(self.graph.op("Add", x, sublayer(self._norm(f"{name}.norm", x))))
        return self._norm(f"{name}.norm", self.graph.op("Add", x, sublayer(x)))

    def _norm(self, name: str, x: str) -> str:
        g = self.graph
        parts = [g.weight(f"{name}.{part}", self.weights[f"{name}.{part}"]) for part in ("weight", "bias")]
        return str(g.op("LayerNormalization", x, *parts, axis=-1, epsilon=self.model.norm_epsilon))

    @property
    def weights_of_output(self) -> Any:
        for name in ("output.weight", "target_embedding.tokens.weight", "source_embedding.tokens.weight"):
            if name in self.weights:
                return self.weights[name]
        raise AssertionError("no output layer")

    def _logits(self, x: str) -> None:
        from onnx import helper

        g, table_VD = self.graph, self.weights_of_output
        if "output.weight" in self.weights or self.fold:
            weight = g.weight("output.transposed", table_VD.T)
        else:  # one copy in the file; a runtime transposes it once, when it loads the model
            tied = "target_embedding.tokens.weight"
            tied = tied if tied in self.weights else "source_embedding.tokens.weight"
            weight = g.op("Transpose", g.weight(tied, table_VD), perm=[1, 0])
        bias = self.weights.get("output.bias")
        product = g.op("MatMul", x, weight)
        if bias is None:
            g.nodes.append(helper.make_node("Identity", [product], ["logits"]))
        else:
            g.nodes.append(helper.make_node("Add", [product, g.weight("output.bias", bias)], ["logits"]))
