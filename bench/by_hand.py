"""CTranslate2 as one calls it by hand: lines in, lines out. python by_hand.py MODEL BATCH_TYPE BATCH_SIZE"""

import os
import sys

import ctranslate2

folder, batch_type, batch_size = sys.argv[1:]
workers = len(os.sched_getaffinity(0))
translator = ctranslate2.Translator(folder, device="cpu", compute_type="int8", inter_threads=workers, intra_threads=1)
lines = [[*line.split(), "</s>"] for line in sys.stdin]
# It sorts by length itself, and cuts batches of at most this size for its workers.
results = translator.translate_batch(
    lines, beam_size=5, max_batch_size=int(batch_size), batch_type=batch_type, max_decoding_length=256
)
print("\n".join(" ".join(result.hypotheses[0]) for result in results))
