"""Running text and markup: split documents into sentences like those of a training corpus, and put the translations
together again.

`document.plan` is the entry point. Nothing here needs an engine: the caller translates `plan.sentences`, at once or in
jobs, and hands the translations with their alignments to `plan.join`. `glossary` finds terms in sentences.
"""
