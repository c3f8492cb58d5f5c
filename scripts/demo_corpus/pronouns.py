"""Personal pronouns with their forms in both languages."""

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class Pronoun:
    english: str
    english_object: str
    french: str
    direct: str
    dative: str
    strong: str
    reflexive: str
    person: int  # index in the rows of finite verb forms
    gender: str = "m"
    plural: bool = False


PRONOUNS = {
    "I": Pronoun("I", "me", "je", "me", "me", "moi", "me", 0),
    "you": Pronoun("you", "you", "vous", "vous", "vous", "vous", "vous", 3),
    "he": Pronoun("he", "him", "il", "le", "lui", "lui", "se", 1),
    "she": Pronoun("she", "her", "elle", "la", "lui", "elle", "se", 1, "f"),
    "it": Pronoun("it", "it", "il", "le", "lui", "lui", "se", 1),
    "it (f)": Pronoun("it", "it", "elle", "la", "lui", "elle", "se", 1, "f"),
    "we": Pronoun("we", "us", "nous", "nous", "nous", "nous", "nous", 2, "m", True),
    "they": Pronoun("they", "them", "ils", "les", "leur", "eux", "se", 4, "m", True),
    "they (f)": Pronoun("they", "them", "elles", "les", "leur", "elles", "se", 4, "f", True),
    "who": Pronoun("who", "whom", "qui", "", "", "", "se", 1),
}
