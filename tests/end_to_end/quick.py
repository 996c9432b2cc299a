"""Settings for trainings whose result does not matter: the smallest model, two steps."""

SETTINGS = [
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.d_model=8",
    "model.heads=2",
    "model.d_ff=12",
    "training.max_steps=2",
    "training.warmup_steps=1",
    "training.batch_tokens=200",
]
QUICK = [word for assignment in SETTINGS for word in ("--set", assignment)]
