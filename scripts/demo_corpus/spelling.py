"""Sentences from lists of words: French elision and contraction, the English article, the capital letter."""

import re

Words = list[str]
VOWELS = "aàâeéèêëiîïoôuûœ"
NO_ELISION = ("haricot", "homard", "hamster", "hibou", "héros", "haut", "hache", "harpe", "huit", "onze")
ELIDED = {"le", "la", "je", "me", "se", "ne", "de", "que"}
CONTRACTED = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}


def join_french(words: Words) -> str:
    """Apply elision, contraction and the forms before a vowel ("X/Y": Y before a vowel), from the last word back."""
    sentence: Words = []
    for word in reversed(" ".join(words).split()):
        following = sentence[0] if sentence else ""
        vowel = _starts_with_vowel(following)
        if "/" in word:
            word = word.split("/")[vowel]
        if (word in ELIDED and vowel) or (word == "si" and following in ("il", "ils")):
            sentence[0] = word[:-1] + "'" + following
        elif (word, following) in CONTRACTED:
            sentence[0] = CONTRACTED[word, following]
        else:
            sentence.insert(0, word)
    return _finish(sentence)


def join_english(words: Words) -> str:
    sentence: Words = []
    for word in reversed(words):
        article = word == "a" and sentence and re.match(r"[aeio]|u(?!ni|se)|hon|hour", sentence[0].lower())
        sentence.insert(0, "an" if article else word)
    return _finish(sentence)


def _starts_with_vowel(word: str) -> bool:
    lower = word.lower()
    if not lower or lower.startswith(NO_ELISION):
        return False
    return lower[0] in VOWELS + "h" or lower == "y"


def _finish(words: Words) -> str:
    text = " ".join(words).replace(" ,", ",").replace(" .", ".")
    return text[0].upper() + text[1:]
