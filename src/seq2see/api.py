"""Public functions and classes for training and using models, with the events that a training reports."""

from seq2see.documents.glossary import Glossary
from seq2see.interop.importing import import_model
from seq2see.run import Run, load
from seq2see.session.request import Began, Event, Interrupted, Said
from seq2see.session.train import train
from seq2see.training.events import Finished, Returned, Shrunk, Stepped, ThreadsChanged, Trained, Validated

__all__ = [
    "Began",
    "Event",
    "Finished",
    "Glossary",
    "Interrupted",
    "Returned",
    "Run",
    "Said",
    "Shrunk",
    "Stepped",
    "ThreadsChanged",
    "Trained",
    "Validated",
    "import_model",
    "load",
    "train",
]
