"""The sentences of the generated corpus in five languages, with slots for values.

A slot has the name of a kind of value. Line n is the same sentence in every language.
"""

from __future__ import annotations

# Kinds of values that are also used alone, without a sentence.
BARE = (
    "full date day time ahead ago number words ordinal percent money amount quantity measure "
    "duration places tongues"
)

SENTENCES = {
    "de": """Das Treffen ist am {full}, um {time} Uhr.
        Der Zug fährt um {time} Uhr ab und die Fahrt dauert {duration}.
        Die Ausstellung beginnt am {date} und dauert {duration}.
        Die Rechnung vom {date} beläuft sich auf {money}.
        Die Fahrkarte kostet {amount}.
        Der Preis stieg um {percent} auf {money}.
        Der Preis für {quantity} beträgt {money}.
        Wir brauchen {quantity}.
        Das Geschäft öffnet {ahead}.
        Das Paket ist {ago} angekommen.
        Hier leben {count} Menschen.
        Die Antwort ist {words}.
        Besuchte Länder: {places}.
        Gesprochene Sprachen: {tongues}.""",
    "en": """The meeting is on {full}, at {time}.
        The train leaves at {time} and the journey takes {duration}.
        The exhibition opens on {date} and lasts {duration}.
        The invoice of {date} amounts to {money}.
        The ticket costs {amount}.
        The price rose by {percent} to {money}.
        The price of {quantity} is {money}.
        We need {quantity}.
        The shop opens {ahead}.
        The parcel arrived {ago}.
        {count} people live here.
        The answer is {words}.
        Countries visited: {places}.
        Languages spoken: {tongues}.""",
    "es": """La reunión es el {full}, a las {time}.
        El tren sale a las {time} y el viaje dura {duration}.
        La exposición empieza el {date} y dura {duration}.
        La factura del {date} asciende a {money}.
        El billete cuesta {amount}.
        El precio subió un {percent} hasta {money}.
        El precio de {quantity} es de {money}.
        Necesitamos {quantity}.
        La tienda abre {ahead}.
        El paquete llegó {ago}.
        Aquí viven {count} personas.
        La respuesta es {words}.
        Países visitados: {places}.
        Idiomas hablados: {tongues}.""",
    "fr": """La réunion a lieu le {full} à {time}.
        Le train part à {time} et le trajet dure {duration}.
        L'exposition commence le {date} et dure {duration}.
        La facture du {date} s'élève à {money}.
        Le billet coûte {amount}.
        Le prix a augmenté de {percent} pour atteindre {money}.
        Le prix de {quantity} est de {money}.
        Il nous faut {quantity}.
        Le magasin ouvre {ahead}.
        Le colis est arrivé {ago}.
        {count} personnes vivent ici.
        La réponse est {words}.
        Pays visités : {places}.
        Langues parlées : {tongues}.""",
    "it": """La riunione è {full} alle {time}.
        Il treno parte alle {time} e il viaggio dura {duration}.
        La mostra inizia il {date} e dura {duration}.
        La fattura del {date} ammonta a {money}.
        Il biglietto costa {amount}.
        Il prezzo è salito del {percent} a {money}.
        Il prezzo di {quantity} è di {money}.
        Abbiamo bisogno di {quantity}.
        Il negozio apre {ahead}.
        Il pacco è arrivato {ago}.
        Qui vivono {count} persone.
        La risposta è {words}.
        Paesi visitati: {places}.
        Lingue parlate: {tongues}.""",
}

# Corrections: grammar that depends on the next word, and ordinals that num2words misspells.
TOUCH_UPS = {
    "es": (
        (r"\by (?=[Hh]?[Ii](?![aeo]))", "e "),  # Francia e Italia
        (r"\ba las (?=1:)", "a la "),
        ("décimoprimero", "undécimo"),
        ("décimosegundo", "duodécimo"),
    ),
    "fr": (
        (r"\b1 (?=janv|févr|mars|avr|mai|juin|juil|août|sept|oct|nov|déc)", "1er "),
        (r"(?<=cent|ingt)sième", "ième"),  # deux centième, quatre-vingtième
    ),
    "it": (
        (r"\bil (?=8|11\b)", "l'"),  # l'8 maggio
        (r"\b(de|da|a)l (?=8|11\b)", r"\1ll'"),
    ),
}
