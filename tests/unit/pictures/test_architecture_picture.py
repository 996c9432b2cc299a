"""The plan of a model agrees with the model."""

import pytest
import torch

from seq2see import config
from seq2see.config import Model
from seq2see.lens.capture import capture
from seq2see.model.build import build, count_parameters
from seq2see.pictures import architecture

SMALL = {"encoder_layers": 2, "decoder_layers": 1, "d_model": 12, "heads": 3, "d_ff": 20}


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("positions", ["sinusoid", "learned", "rotary", "none"])
@pytest.mark.parametrize("tie", ["all", "decoder", "none"])
@pytest.mark.parametrize("output_bias", [False, True])
def test_all_parameters_are_in_the_plan(norm, positions, tie, output_bias):
    model = Model(**SMALL, norm=norm, positions=positions, tie=tie, output_bias=output_bias)
    plan = architecture.plan(model, 30, 30)
    assert architecture.count_parameters(plan) == count_parameters(model, 30, 30)


@pytest.mark.parametrize(
    "architecture_", ["rnn", "rnn-bidirectional", "rnn-attention", "rnn-dot", "rnn-general", "convolutional"]
)
@pytest.mark.parametrize("tie", ["all", "none"])
def test_all_parameters_of_what_it_replaced_are_in_the_plan(architecture_, tie):
    sizes = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 12, "d_hidden": 10}
    model = Model(architecture=architecture_, **sizes, tie=tie, output_bias=True)
    plan = architecture.plan(model, 30, 30)
    assert architecture.count_parameters(plan) == count_parameters(model, 30, 30)
    assert ("cross attention" in [step.name for step in plan]) == bool(model.attention)


def test_the_tutorial_and_the_paper():
    for name, size, expected in (("tutorial-small", 9000, 5_316_392), ("paper-base", 37_000, 63_082_496)):
        model = config.resolve(config.preset(name)).model
        plan = architecture.plan(model, size, size)
        assert architecture.count_parameters(plan) == expected


def test_shapes_are_those_of_the_model():
    """What capture hears for 5 source and 4 target tokens is what the plan says, S and T filled in."""
    model = Model(**SMALL)
    built = build(model, 30, 30).eval()
    with torch.inference_mode(), capture(built) as seen:
        memory = built.encode(torch.arange(5), torch.tensor([0, 5]))
        logits = built.output(built.decode(torch.arange(4), torch.tensor([0, 4]), memory))
    plan = architecture.plan(model, 30, 30)

    def filled(text):
        numbers = text.replace("S", "5").replace("T", "4").split(" × ")
        return [int(number) for number in numbers]

    inside = {(step.stack, step.name): step.inside for step in plan}
    for key, point in (
        (("encoder", "multi-head attention"), "encoder.0.self_attention.weights"),
        (("decoder", "masked multi-head attention"), "decoder.0.self_attention.weights"),
        (("decoder", "cross attention"), "decoder.0.cross_attention.weights"),
    ):
        (weights,) = [line.removeprefix("weights ") for line in inside[key] if line.startswith("weights ")]
        assert filled(weights) == list(seen[point][0].shape[1:])
    last = [step for step in plan if step.stack == "encoder"][-1]
    assert filled(last.shape) == list(memory.states_ND.shape)
    assert filled(plan[-1].shape) == list(logits.shape)


def test_values_of_another_width_than_keys_are_drawn_with_their_own():
    """What the attention computes, with heads of 3 numbers for keys and 7 for values, is what the plan says."""
    model = Model(**{**SMALL, "heads": 2}, d_key=3, d_value=7)
    built = build(model, 30, 30).eval()
    attention = built.encoder[0].self_attention
    inside = {(step.stack, step.name): step.inside[0] for step in architecture.plan(model, 30, 30) if step.inside}
    heads = [f"{attention.heads} × L × {width}" for width in (attention.d_key, attention.d_value)]
    keys, values = heads
    assert (keys, values) == ("2 × L × 3", "2 × L × 7")
    for side, name, L in (("encoder", "multi-head attention", "S"), ("decoder", "masked multi-head attention", "T")):
        assert inside[side, name] == f"Q, K {keys.replace('L', L)}    V {values.replace('L', L)}"
    assert inside["decoder", "cross attention"] == "Q 2 × T × 3    K 2 × S × 3    V 2 × S × 7"
    same = {step.name: step.inside[0] for step in architecture.plan(Model(**SMALL), 30, 30) if step.inside}
    assert same["multi-head attention"].startswith("Q, K, V ")


@pytest.mark.parametrize("name", config.PRESETS)
def test_every_preset_can_be_drawn(name, tmp_path):
    model = config.resolve(config.preset(name)).model
    plan = architecture.plan(model, 1000, 1000)
    architecture.draw(plan, name, tmp_path / "plan.svg")
    svg = (tmp_path / "plan.svg").read_text(encoding="utf-8")
    for step in plan:
        for text in (step.name.replace("&", "&amp;"), step.shape, *step.inside):
            assert f">{text}<" in svg, text
    assert (f">× {model.encoder_layers}<" in svg) == (model.architecture in ("transformer", "convolutional"))
    assert f"{count_parameters(model, 1000, 1000):,} parameters" in svg


def test_a_single_layer_has_a_frame_too(tmp_path):
    plan = architecture.plan(Model(**SMALL), 30, 30)
    architecture.draw(plan, "one", tmp_path / "plan.svg")
    assert ">× 1<" in (tmp_path / "plan.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("settings", "reader"),
    [
        ({}, "cross attention"),
        ({"norm": "pre"}, "cross attention"),
        ({"architecture": "rnn-attention"}, "cross attention"),
        ({"architecture": "rnn-dot"}, "cross attention"),
        ({"architecture": "convolutional"}, "cross attention"),
        ({"architecture": "rnn"}, "LSTM"),
    ],
)
def test_what_the_encoder_found_goes_where_it_is_read(settings, reader, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(architecture.drawing, "save", lambda figure, *_: drawn.append(figure))
    plan = architecture.plan(Model(**(SMALL if "architecture" not in settings else {}), **settings), 30, 30)
    architecture.draw(plan, "memory", tmp_path / "plan.png")
    (axes,) = drawn[0].axes
    ends = [line.get_xydata()[-1] for line in axes.lines if line.get_color() == architecture.ORANGE]
    names = [text.get_text() for text in axes.texts if text.get_color() == architecture.ORANGE]
    assert names == (["", "memory"] if reader == "LSTM" else ["K", "V", "memory"])
    assert len(ends) == len(names) - 1
    end_x = ends[0][0]
    (box,) = [
        patch
        for patch in axes.patches
        if getattr(patch, "get_width", None)
        and patch.get_x() == end_x
        and all(patch.get_y() < end_y < patch.get_y() + patch.get_height() for _, end_y in ends)
    ]
    texts = [text for text in axes.texts if end_x < text.get_position()[0] < end_x + box.get_width() / 2]
    inside = [text for text in texts if box.get_y() < text.get_position()[1] < box.get_y() + box.get_height()]
    assert max(inside, key=lambda text: text.get_position()[1]).get_text() == reader
