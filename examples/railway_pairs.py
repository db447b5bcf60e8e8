"""Write English-German pairs of railway announcements: 2,000 to train on, 200 to validate and 200 to test.

    python examples/railway_pairs.py railway

The pairs are made from sentence patterns with stations, times, platforms and delays, so they need no download. No
sentence of one file occurs in another. `recipes/quickstart.yaml` trains on them.
"""

import argparse
import random
from pathlib import Path

SPLITS = {"train": 2000, "val": 200, "test": 200}

SAME = "Berlin Hamburg Frankfurt Stuttgart Dresden Leipzig Bremen Dortmund Essen Basel Paris Salzburg Kiel Mainz"
STATIONS = {name: name for name in SAME.split()} | {
    "Munich": "München",
    "Cologne": "Köln",
    "Hanover": "Hannover",
    "Nuremberg": "Nürnberg",
    "Vienna": "Wien",
    "Zurich": "Zürich",
    "Geneva": "Genf",
    "Prague": "Prag",
    "Warsaw": "Warschau",
    "Brussels": "Brüssel",
    "Copenhagen": "Kopenhagen",
    "Milan": "Mailand",
    "Venice": "Venedig",
}
DAYS = {
    "Monday": "Montag",
    "Tuesday": "Dienstag",
    "Wednesday": "Mittwoch",
    "Thursday": "Donnerstag",
    "Friday": "Freitag",
    "Saturday": "Samstag",
    "Sunday": "Sonntag",
}
TRAINS = {
    "the train": "der Zug",
    "the express train": "der Schnellzug",
    "the regional train": "der Regionalzug",
    "the night train": "der Nachtzug",
    "the suburban train": "die S-Bahn",
}
REASONS = {
    "a technical fault": "einer technischen Störung",
    "bad weather": "schlechten Wetters",
    "a signal failure": "einer Signalstörung",
    "construction work": "Bauarbeiten",
    "a fallen tree": "eines umgestürzten Baumes",
    "a police operation": "eines Polizeieinsatzes",
    "heavy snow": "starken Schneefalls",
    "a strike": "eines Streiks",
}
PLACES = {
    "the dining car": "der Speisewagen",
    "the ticket office": "der Fahrkartenschalter",
    "the waiting room": "der Wartesaal",
    "the lost property office": "das Fundbüro",
    "the car park": "der Parkplatz",
    "the information desk": "die Auskunft",
}
SENTENCES = """\
{train} to {to} leaves at {time} from platform {platform}.
    {train} nach {to} fährt um {time} Uhr von Gleis {platform} ab.
{train} from {to} arrives at {time} on platform {platform}.
    {train} aus {to} kommt um {time} Uhr auf Gleis {platform} an.
{train} to {to} is {minutes} minutes late because of {reason}.
    {train} nach {to} hat wegen {reason} {minutes} Minuten Verspätung.
{train} to {to} has been cancelled because of {reason}.
    {train} nach {to} fällt wegen {reason} aus.
{train} from {to} to {via} leaves from platform {platform} today.
    {train} von {to} nach {via} fährt heute von Gleis {platform} ab.
on {day} {train} to {to} does not stop in {via}.
    am {day} hält {train} nach {to} nicht in {via}.
please change in {via} for trains to {to}.
    bitte steigen Sie in {via} um, wenn Sie nach {to} fahren.
a single ticket to {to} costs {price} euros.
    eine einfache Fahrkarte nach {to} kostet {price} Euro.
the journey from {to} to {via} takes {hours} hours and {minutes} minutes.
    die Fahrt von {to} nach {via} dauert {hours} Stunden und {minutes} Minuten.
{place} is closed from {day} to {until}.
    {place} ist von {day} bis {until} geschlossen.
is {train} from {to} to {via} on time?
    ist {train} von {to} nach {via} pünktlich?
does {train} to {to} also stop in {via}?
    hält {train} nach {to} auch in {via}?
"""
LINES = [line.strip() for line in SENTENCES.splitlines()]
PATTERNS = list(zip(LINES[::2], LINES[1::2], strict=True))  # in English and in German


def draw_pair(chance: random.Random) -> tuple[str, str]:
    """Draw one announcement in both languages."""
    words = dict(zip(("to", "via"), chance.sample(list(STATIONS.items()), 2), strict=True))
    words |= zip(("day", "until"), chance.sample(list(DAYS.items()), 2), strict=True)
    for name, table in {"train": TRAINS, "reason": REASONS, "place": PLACES}.items():
        words[name] = chance.choice(list(table.items()))
    numbers = {
        "time": f"{chance.randrange(5, 24)}:{chance.randrange(0, 60, 5):02}",
        "platform": chance.randrange(1, 25),
        "minutes": chance.randrange(5, 60, 5),
        "hours": chance.randrange(2, 13),
        "price": chance.randrange(9, 200),
    }
    english, german = (
        pattern.format(**numbers, **{name: both[side] for name, both in words.items()})
        for side, pattern in enumerate(chance.choice(PATTERNS))
    )
    return english[0].upper() + english[1:], german[0].upper() + german[1:]


def draw_pairs(count: int, seed: int) -> list[tuple[str, str]]:
    """Draw pairs, each English sentence once."""
    chance, pairs = random.Random(seed), {}
    while len(pairs) < count:
        english, german = draw_pair(chance)
        pairs[english] = german
    return list(pairs.items())


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description="Write English-German pairs of railway announcements.")
    parser.add_argument("folder", type=Path, help="folder to write train, val and test to, as .en and .de files")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    pairs = draw_pairs(sum(SPLITS.values()), options.seed)
    for split, count in SPLITS.items():
        chosen, pairs = pairs[:count], pairs[count:]
        for language, texts in zip(("en", "de"), zip(*chosen, strict=True), strict=True):
            path = options.folder / f"{split}.{language}"
            path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        print(f"{options.folder / split}.en, .de: {count:,} pairs")


if __name__ == "__main__":
    main()
