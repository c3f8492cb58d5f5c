"""Worked examples of the grammar of the demo corpus."""

import pytest
from configs import ROOT

from scripts.demo_corpus import __main__ as corpus
from scripts.demo_corpus import circumstance_sampler, grammar, links, noun_phrases, pronouns, spelling, word_sampler
from scripts.demo_corpus.noun_phrase_sampler import NounPhraseSampler

Clause, Gap = grammar.Clause, noun_phrases.Gap
PRONOUNS = pronouns.PRONOUNS
DATA = ROOT / "data" / "demo"
lexicon = corpus.Lexicon(DATA / "lexicon.yaml")


def np(noun: str, det: str = "the", *adjectives: str, **features) -> object:
    words = tuple(lexicon.adjectives[word] for word in adjectives)
    features.setdefault("plural", lexicon.nouns[noun].always_plural)
    return noun_phrases.NounPhrase(lexicon.nouns[noun], det, adjectives=words, **features)


def name(noun: str) -> object:
    return np(noun, "")


def say(subject: object, verb: str, *complements: object, modal: str = "", **features) -> object:
    if isinstance(subject, str):
        subject = PRONOUNS[subject]
    complements = tuple(PRONOUNS[word] if isinstance(word, str) else word for word in complements)
    helper = lexicon.modals[modal] if modal else None
    return Clause(subject, lexicon.verbs[verb], complements, modal=helper, **features)


def link(english: str, french: str) -> object:
    return links.Link(english, french)


def noun_phrase_sampler(picked: str) -> object:
    """A random generator that always chooses the same word."""
    words = word_sampler.WordSampler(lexicon, None)
    words.pick = lambda _: picked
    return NounPhraseSampler(words)


def place(noun: str, role: str = "lieu") -> object:
    sampler = circumstance_sampler.CircumstanceSampler(noun_phrase_sampler(noun))
    return sampler.place(lexicon.nouns[noun], role)


def profession(masculine: str) -> object:
    return noun_phrase_sampler(masculine).profession()


def when(tense: str, english: str) -> object:
    return next(time for time in lexicon.times[tense] if " ".join(time.english) == english)


def how(key: str) -> object:
    return lexicon.manners[key]


SENTENCES = [
    # determiners, agreement, adjectives before and after the noun
    ([say(np("boy"), "eat", np("apple", "a", "small", "delicious"))],
     "The boy eats a small delicious apple.", "Le garçon mange une petite pomme délicieuse."),
    ([say(np("woman", "this"), "buy", np("car", "a", "beautiful", "red"))],
     "This woman buys a beautiful red car.", "Cette femme achète une belle voiture rouge."),
    ([say(np("man", "this", "old"), "have", np("tree", "a", "beautiful"))],
     "This old man has a beautiful tree.", "Ce vieil homme a un bel arbre."),
    ([say("he", "have", np("computer", "a", "new"))],
     "He has a new computer.", "Il a un nouvel ordinateur."),
    ([say("she", "wear", np("dress", "a", "white", plural=True))],
     "She wears some white dresses.", "Elle porte des robes blanches."),
    ([say("we", "see", np("horse", "a", "beautiful", "black", plural=True))],
     "We see some beautiful black horses.", "Nous voyons de beaux chevaux noirs."),
    ([say(np("suitcase", "this", plural=True), "be", lexicon.adjectives["brown"])],
     "These suitcases are brown.", "Ces valises sont marron."),
    ([say(np("house", "all", plural=True), "be", lexicon.adjectives["expensive"])],
     "All the houses are expensive.", "Toutes les maisons sont chères."),
    ([say(np("water", "all"), "be", lexicon.adjectives["cold"])],
     "All the water is cold.", "Toute l'eau est froide."),
    # elision, contraction, h muet and h aspiré
    ([say("I", "like", np("hamster", "generic", plural=True))],
     "I like hamsters.", "J'aime les hamsters."),
    ([say(np("hero"), "arrive", place("hotel", "arrivée"))],
     "The hero arrives at the hotel.", "Le héros arrive à l'hôtel."),
    ([say("she", "talk_about", np("hero"))], "She talks about the hero.", "Elle parle du héros."),
    ([say("she", "talk_about", np("man", plural=True))],
     "She talks about the men.", "Elle parle des hommes."),
    ([say("he", "go", place("market", "but"))], "He goes to the market.", "Il va au marché."),
    ([say("he", "talk_to", np("child", plural=True))],
     "He talks to the children.", "Il parle aux enfants."),
    ([say("they", "stay", place("Japan"))], "They stay in Japan.", "Ils restent au Japon."),
    ([say("they", "go", place("Italy", "but"))], "They go to Italy.", "Ils vont en Italie."),
    ([say("you", "play_game", np("chess", "generic"))], "You play chess.", "Vous jouez aux échecs."),
    ([say("you", "play_instrument", np("piano"))], "You play the piano.", "Vous jouez du piano."),
    # owners, possessives, numbers
    ([say(np("brother", "of", owner=name("Hélène")), "sleep")],
     "Hélène's brother sleeps.", "Le frère d'Hélène dort."),
    ([say(np("friend", "my"), "love", np("island", "this"))],
     "My friend loves this island.", "Mon ami adore cette île."),
    ([say(name("Anne"), "look_for", np("scarf", "her"))],
     "Anne looks for her scarf.", "Anne cherche son écharpe."),
    ([say(np("boy", "", plural=True, count=("two", "deux")), "draw",
          np("bird", "", plural=True, count=("twenty", "vingt")))],
     "Two boys draw twenty birds.", "Deux garçons dessinent vingt oiseaux."),
    # partitives, and "de" after a negation
    ([say("I", "drink", np("water", "a", "cold"))], "I drink some cold water.", "Je bois de l'eau froide."),
    ([say("he", "have", np("dog", "a"), negation="not")], "He does not have a dog.", "Il n'a pas de chien."),
    ([say("we", "eat", np("meat", "a"), negation="never")],
     "We never eat any meat.", "Nous ne mangeons jamais de viande."),
    ([say("I", "buy", np("egg", "a", plural=True), tense="past", negation="not")],
     "I did not buy any eggs.", "Je n'ai pas acheté d'œufs."),
    ([say("she", "like", np("cat", "generic", plural=True), negation="not")],
     "She does not like cats.", "Elle n'aime pas les chats."),
    # stems that change
    ([say("we", "start", np("lesson"))], "We start the lesson.", "Nous commençons la leçon."),
    ([say("she", "prefer", np("tea", "generic"))], "She prefers tea.", "Elle préfère le thé."),
    ([say("they", "call", np("doctor", "their"))], "They call their doctor.", "Ils appellent leur médecin."),
    # passé composé: être and the subject, avoir and an object before it
    ([say(name("Marie"), "go", place("London", "but"), tense="past")],
     "Marie went to London.", "Marie est allée à Londres."),
    ([say(noun_phrases.Both(name("Marie"), name("Sophie")), "come_home", tense="past", negation="not")],
     "Marie and Sophie did not come home.", "Marie et Sophie ne sont pas rentrées."),
    ([say(noun_phrases.Both(name("Marie"), name("Paul")), "get_up", tense="past")],
     "Marie and Paul got up.", "Marie et Paul se sont levés."),
    ([say(name("Julie"), "be_born", place("France"), tense="past")],
     "Julie was born in France.", "Julie est née en France."),
    ([say("I", "see", "they (f)", tense="past")], "I saw them.", "Je les ai vues."),
    ([say("he", "write", np("letter", "a"), tense="past"), link("and", "et"),
      say("she", "read", "it (f)", tense="past")],
     "He wrote a letter and she read it.", "Il a écrit une lettre et elle l'a lue."),
    # clitics
    ([say("I", "phone", "she")], "I phone her.", "Je lui téléphone."),
    ([say("you", "answer", "they", tense="past", negation="not")],
     "You did not answer them.", "Vous ne leur avez pas répondu."),
    ([say(name("Luc"), "help", "I", tense="future")], "Luc is going to help me.", "Luc va m'aider."),
    ([say("she", "lend", np("book", "her"), "we", tense="past")],
     "She lent her book to us.", "Elle nous a prêté son livre."),
    ([say("we", "think_about", "they")], "We think about them.", "Nous pensons à eux."),
    ([say("he", "take_care_of", "she")], "He takes care of her.", "Il s'occupe d'elle."),
    # futur proche and modal verbs
    ([say("he", "eat", np("cake"), tense="future", negation="not")],
     "He is not going to eat the cake.", "Il ne va pas manger le gâteau."),
    ([say("we", "rest", tense="future")], "We are going to rest.", "Nous allons nous reposer."),
    ([say("she", "see", "he", modal="want")], "She wants to see him.", "Elle veut le voir."),
    ([say("I", "open", np("door"), modal="can", negation="not")],
     "I cannot open the door.", "Je ne peux pas ouvrir la porte."),
    ([say("they", "open", np("window"), modal="try", tense="past")],
     "They tried to open the window.", "Ils ont essayé d'ouvrir la fenêtre."),
    # questions
    ([say("he", "be_hungry", question="yes_no")], "Is he hungry?", "Est-ce qu'il a faim ?"),
    ([say(np("key"), "be", Gap(), question="where")], "Where is the key?", "Où est la clé ?"),
    ([say("you", "go_out", tense="past", question="when")],
     "When did you go out?", "Quand est-ce que vous êtes sorti ?"),
    ([say(name("Alice"), "buy", Gap(), tense="past", question="what")],
     "What did Alice buy?", "Qu'est-ce qu'Alice a acheté ?"),
    ([say("they", "wait_for", Gap(), question="whom")],
     "Who do they wait for?", "Qui est-ce qu'ils attendent ?"),
    ([say("who", "break", np("lamp"), tense="past", question="who")],
     "Who broke the lamp?", "Qui a cassé la lampe ?"),
    ([say("she", "pick", Gap(lexicon.nouns["flower"], True), tense="past", question="which",
          fronted=np("flower", "how many", plural=True))],
     "How many flowers did she pick?", "Combien de fleurs est-ce qu'elle a cueillies ?"),
    ([say(name("Paul"), "choose", Gap(lexicon.nouns["tie"], True), tense="past", question="which",
          fronted=np("tie", "which", plural=True))],
     "Which ties did Paul choose?", "Quelles cravates est-ce que Paul a choisies ?"),
    # professions without an article
    ([say("she", "be", profession("doctor"))], "She is a doctor.", "Elle est médecin."),
    ([say(name("Sophie"), "become", profession("actor"), tense="past")],
     "Sophie became an actor.", "Sophie est devenue actrice."),
    ([say(name("Paul"), "be", profession("nurse"), negation="not")],
     "Paul is not a nurse.", "Paul n'est pas infirmier."),
    # relative clauses
    ([say(np("letter", relative=say(name("Marie"), "write", Gap(lexicon.nouns["letter"]), tense="past")), "be",
          lexicon.adjectives["long"])],
     "The letter that Marie wrote is long.", "La lettre que Marie a écrite est longue."),
    ([say(np("girl", plural=True, relative=say(Gap(lexicon.nouns["girl"], True, True), "fall", tense="past")), "cry")],
     "The girls who fell cry.", "Les filles qui sont tombées pleurent."),
    # adverbs, times, places, coordination
    ([say("she", "swim", tense="past", adverbials=(how("well"), when("past", "yesterday")))],
     "She swam well yesterday.", "Elle a bien nagé hier."),
    ([say("he", "drive", np("car", "his"), adverbials=(how("slowly"),))],
     "He drives his car slowly.", "Il conduit lentement sa voiture."),
    ([say(name("Luc"), "sing", adverbials=(place("church"),), opening=when("present", "on Sundays"))],
     "On Sundays, Luc sings in the church.", "Le dimanche, Luc chante dans l'église."),
    ([link("if", "si"), say("he", "be_thirsty"), link(",", ","), say("he", "drink", np("milk", "a"), tense="future")],
     "If he is thirsty, he is going to drink some milk.", "S'il a soif, il va boire du lait."),
    ([say("I", "know_that", say("she", "work", adverbials=(how("a_lot"),)))],
     "I know that she works a lot.", "Je sais qu'elle travaille beaucoup."),
    ([say("she", "sleep", progressive=True), link("while", "pendant que"),
      say(np("owl"), "look_at", "she", progressive=True)],
     "She is sleeping while the owl is looking at her.", "Elle dort pendant que le hibou la regarde."),
]  # fmt: skip


def test_there_are_at_least_forty_worked_examples():
    assert len(SENTENCES) >= 40


@pytest.mark.parametrize(("parts", "english", "french"), SENTENCES, ids=[english for _, english, _ in SENTENCES])
def test_a_meaning_has_its_form_in_both_languages(parts, english, french):
    example = corpus.realise(tuple(parts))
    assert (example.english, example.french) == (english, french)


def test_an_adjective_as_predicate_keeps_its_form_before_a_vowel():
    clause = say("he", "be", lexicon.adjectives["old"])
    assert spelling.join_french([*clause.say_french(), "et", "occupé"]) == "Il est vieux et occupé"
