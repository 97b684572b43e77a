"""Text as sub-words, and back.

The vocabulary is a file in the format of the TensorFlow Model Garden: one sub-word a line, in quotes; `<pad>` and
`<EOS>` come first. Text is split into words and what is between them; a single space between two words is left out. A
word ends with "_", so that the sub-words of a text show where words end. Within a word "_" is written as "\\u", "\\" as
"\\\\", and a character that is not in the vocabulary as "\\" with its number and ";". The sub-words of a word are the
longest ones, from left to right.
"""

from __future__ import annotations

import io
import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))  # the folder `examples`

from common.errors import InputError

PAD, EOS = 0, 1
RESERVED = ("<pad>", "<EOS>")
ESCAPES = "\\_u;0123456789"
MAX_CHARACTERS = 1000  # of a learned vocabulary; rarer ones are escaped
HIDDEN = 0xE000  # what `learn` adds to white space, at which the library would split


class Subtokenizer:
    """Encodes and decodes text with the vocabulary of a file. Raises InputError for a file that is none."""

    def __init__(self, vocab_file: str | Path) -> None:
        self.subtokens = read_vocabulary(Path(vocab_file))
        self._numbers = {subtoken: number for number, subtoken in enumerate(self.subtokens) if number > EOS}
        self._longest = max(map(len, self._numbers))
        self._known: dict[str, list[int]] = {}
        if missing := sorted(character for character in ESCAPES if character not in self._numbers):
            raise InputError(
                f"the vocabulary {vocab_file} lacks the characters {' '.join(missing)}: it cannot spell words"
            )

    @property
    def vocab_size(self) -> int:
        return len(self.subtokens)

    def encode(self, text: str, add_eos: bool = False) -> list[int]:
        """Returns the numbers of the sub-words of a line of text."""
        numbers = [number for word in split(text) for number in self._encode_word(word)]
        return [*numbers, EOS] if add_eos else numbers

    def decode(self, numbers: Iterable[int]) -> str:
        """Returns the text of sub-words, up to EOS. Padding and numbers outside the vocabulary count for nothing."""
        pieces = []
        for number in numbers:
            if number == EOS:
                break
            if PAD < number < len(self.subtokens):
                pieces.append(self.subtokens[number])
        return join([unescape(word) for word in "".join(pieces).split("_") if word])

    def _encode_word(self, word: str) -> list[int]:
        if word not in self._known:
            self._known[word] = list(self._longest_first(escape(word, self._numbers)))
        return self._known[word]

    def _longest_first(self, word: str) -> Iterable[int]:
        start = 0
        while start < len(word):
            for end in range(min(len(word), start + self._longest), start, -1):
                if (number := self._numbers.get(word[start:end])) is not None:
                    yield number
                    start = end
                    break


def split(text: str) -> list[str]:
    """Splits a line into words and what is between them."""
    parts = re.findall(r"[^\W_]+|[\W_]+", text.strip())
    return [part for number, part in enumerate(parts) if number == 0 or part != " "]


def join(words: list[str]) -> str:
    """Undoes `split`."""
    text = ""
    for word in words:
        text += " " + word if text and text[-1].isalnum() and word[:1].isalnum() else word
    return text


def escape(word: str, known: Iterable[str]) -> str:
    """Spells a word in the characters of `known`, with "_" at its end."""
    word = word.replace("\\", "\\\\").replace("_", "\\u")
    return "".join(each if each in known and each != "\n" else f"\\{ord(each)};" for each in word) + "_"


def unescape(word: str) -> str:
    def character(match: re.Match[str]) -> str:
        if match[1] is not None:
            return chr(int(match[1])) if int(match[1]) < 0x110000 else "\ufffd"
        return "_" if match[0] == "\\u" else "\\"

    return re.sub(r"\\u|\\\\|\\([0-9]+);", character, word)


def read_vocabulary(path: Path) -> list[str]:
    """Returns the sub-words of a file. Raises InputError."""
    try:
        lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    except OSError as error:
        raise InputError(f"cannot read the vocabulary {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"the vocabulary {path} is not text in UTF-8") from None
    subtokens = [line[1:-1] if line[:1] in ("'", '"') else line for line in lines]
    if tuple(each.rstrip("_") for each in subtokens[:2]) != RESERVED or len(subtokens) < 3:
        raise InputError(f"{path} is not a vocabulary of sub-words: its first lines are not '<pad>' and '<EOS>'")
    return subtokens


def write_vocabulary(path: Path, subtokens: list[str]) -> None:
    path.write_text("".join(f"'{subtoken}'\n" for subtoken in subtokens), encoding="utf-8")


def learn(texts: Iterable[str], vocab_size: int) -> list[str]:
    """Learns a vocabulary of at most `vocab_size` sub-words by byte-pair encoding, with the package sentencepiece.

    Raises InputError if `vocab_size` is too small.
    """
    import sentencepiece

    counts = Counter(word for text in texts for word in split(text))
    characters: Counter[str] = Counter()
    for word, count in counts.items():
        characters.update(dict.fromkeys(word, count))
    alphabet = {character for character, _ in characters.most_common(MAX_CHARACTERS)} | set(ESCAPES)
    if vocab_size < len(alphabet) + len(RESERVED):
        raise InputError(f"a vocabulary of {vocab_size} cannot have the {len(alphabet)} characters of the text")

    hide = {ord(space): HIDDEN + ord(space) for space in alphabet if space.isspace()}
    words = (f"{escape(word, alphabet).translate(hide)}\t{count}" for word, count in counts.items())
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=words,
        model_writer=model,
        input_format="tsv",
        model_type="bpe",
        vocab_size=vocab_size - len(RESERVED) - len(ESCAPES) + 1,  # one of it is "unknown"
        hard_vocab_limit=False,
        character_coverage=1.0,
        normalization_rule_name="identity",
        add_dummy_prefix=False,
        split_by_unicode_script=False,
        split_by_number=False,
        max_sentencepiece_length=40,
        unk_id=0,
        bos_id=-1,
        eos_id=-1,
        minloglevel=2,
    )
    learned = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    show = {hidden: chr(space) for space, hidden in hide.items()}
    pieces = [learned.id_to_piece(number).translate(show) for number in range(1, learned.get_piece_size())]
    return [*RESERVED, *pieces, *(character for character in ESCAPES if character not in pieces)]
