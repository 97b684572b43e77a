"""BLEU, by sacrebleu."""

from __future__ import annotations

import sacrebleu


def bleu_scores(references: list[str], translations: list[str]) -> tuple[float, float]:
    """Returns BLEU of all lines together, from 0 to 100: without and with regard to upper and lower case."""
    uncased, cased = (
        sacrebleu.corpus_bleu(translations, [references], lowercase=lowercase).score for lowercase in (True, False)
    )
    return uncased, cased
