"""Running text and markup: documents become sentences like those of a training corpus, and are put together again.

`document.plan` is the entry point. Nothing here needs an engine: the caller translates `plan.sentences`, at once or in
jobs, and hands the translations with their alignments to `plan.join`. `glossary` finds terms in sentences.
"""
