"""Word lists for `kermit.data.variants`: names, words that only look like names, keys of a keyboard, templates.

The names are spelled alike in English and German, and none of them is a common word of either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy.random import Generator


def choice(choices: Sequence[str], generator: Generator) -> str:
    """Draw one of several."""
    return choices[int(generator.integers(len(choices)))]


def _words(text: str) -> list[str]:
    return text.split()


def _lines(text: str) -> list[str]:
    return text.strip().split("\n")


MEN = _words("""
Aaron Adam Albert Andrew Anton Arthur Ben Boris Brian Carl Charles Christian Daniel David Dennis Emil Eric Felix
Fritz George Günther Hans Harry Heinz Henry Jakob James Jan John Jonas Jürgen Karl Kevin Klaus Leon Lukas Markus
Martin Matthew Michael Moritz Oliver Oscar Otto Patrick Paul Peter Philip Ralf Richard Robert Samuel Sebastian
Simon Stefan Steven Thomas Tim Tobias Tom Walter Wolfgang
""")

WOMEN = _words("""
Alice Amelia Andrea Anna Anja Barbara Birgit Carla Charlotte Christine Claudia Clara Diana Emily Emma Eva Franziska
Greta Hannah Heidi Helen Ingrid Irene Jane Jessica Johanna Julia Karin Katharina Kathrin Laura Lena Linda Lisa
Louise Lucy Maria Marie Martina Mary Melanie Monika Nancy Nicole Nina Olivia Petra Rebecca Sabine Sandra Sarah
Silke Sofia Sophie Stella Susanne Ursula Vanessa
""")

SURNAMES = _words("""
Adams Anderson Bauer Brown Campbell Carter Clark Davis Evans Fischer Garcia Hoffmann Jackson Johnson Jones Kim
Kowalski Krüger Lehmann Lopez Martinez Meier Miller Mitchell Müller Neumann Nguyen Nowak Parker Patel Peterson
Roberts Robinson Rossi Schmidt Schneider Schröder Schulz Schäfer Smith Tanaka Taylor Thompson Turner Wagner Watson
Weber Williams Wilson Yamamoto Zimmermann
""")

PLACES = _words("""
Amsterdam Ankara Augsburg Bangkok Barcelona Berlin Birmingham Bonn Boston Bremen Bristol Budapest Cambridge Chicago
Dallas Detroit Dortmund Dresden Dublin Düsseldorf Edinburgh Essen Frankfurt Freiburg Glasgow Hamburg Heidelberg
Houston Innsbruck Istanbul Kiel Leeds Leipzig Liverpool London Lyon Madrid Mainz Manchester Melbourne Miami Montreal
Nairobi Osaka Oslo Oxford Paris Philadelphia Phoenix Portland Potsdam Rostock Salzburg Seattle Stockholm Stuttgart
Sydney Toronto Toulouse Vancouver Zagreb Marseille Ecuador Wales Shizuoka
""")

GROUPS = {"men": MEN, "women": WOMEN, "surnames": SURNAMES, "places": PLACES}

NOT_NAMES = frozenset(
    _words("""
April August September November Esperanto Hindi Swahili Afrikaans Latin Islam Internet Christmas Halloween
Interlingua Lojban Ido Toki Pona Mandarin Chinese Allah Buddha Celsius Fahrenheit Euro Dollar Yen Mister Mona Everest
Hawaii Hokkaido Kyushu Okinawa Guam Haiti Facebook Twitter Skype Linux Firefox Pepsi Ainu Tatoeba
New York Los Angeles San Francisco Diego Las Vegas Santa Saint Orleans Hampshire Jersey Den El La Le De Van Von
Hong Kong Sri Lanka Tel Aviv Addis Abeba Buenos Aires Rio Janeiro United States The Das Der Die
""")
)
"""Words spelled alike in both languages that a name of a person or place cannot replace."""

ARTICLES = frozenset(
    _words("""
the a an this that der die das den dem des im am vom zum zur beim ein eine einen einem einer eines
dieser diese dieses diesem diesen kein keine keinen
""")
)
"""Words that precede nouns, and seldom names."""

KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
"""Rows of a keyboard; a key's neighbours are those beside it, above and below."""

MISSED = {"ä": "a", "ö": "ol", "ü": "up", "ß": "s"}
"""Letters typed in place of those that only some keyboards have."""

TERMS = _words("""
account admin album alpha archive backup beta blog book buffer cache client cloud config contact count data delta demo
docs download draft events export file filter forum gallery global guide help home image import index info input
invoice items kernel label list local login lower main media menu model music news node notes order output page photo
player portal post project query radio record report result sample score search server session setup shop source start
status store system table target temp test text theme ticket token tools update user value video wiki work
""")

TEMPLATES = _lines("""
https://www.<w><w>.<t>/<w>/<w>-<n>
https://<w>.<w>.<t>/<w>?<w>=<n>
http://<w>-<w>.<t>/<w>.html#<w>
www.<w><w>.<t>
<w>.<w>@<w><w>.<t>
<w><n>@<w>.<t>
<w>_<n>.<e>
<w>-<w>-v<d>.<e>
/home/<w>/<w>/<w>.<e>
~/<w>/<w>_<w>.<e>
C:\\<w>\\<w>\\<w>.<e>
<w>(<w>, <n>)
<w>.<w>_<w>()
<w>_<w> = <w>[<n>]
if <w> == <n>:
for <w> in range(<n>):
def <w>_<w>(<w>, <w>=<n>):
import <w>.<w>
int <w> = <w>_<w>(<n>);
<<w> id="<w><n>">
SELECT <w> FROM <w> WHERE <w> = <n>;
git checkout <w>/<w>-<n>
--<w>-<w>=<n>
$<w>_<w>
#<w><w>
@<w>_<w><d>
v<d>.<n>.<d>
192.168.<n>.<n>
+49 30 <n><n><n>
<i>-<i>
<i><n>
<w>_<i>
<x>-<x>-<x>
<x>
""")
"""A `<letter>` stands for a draw: w a term, n a number, d a digit, t a domain, e a suffix, i and x identifiers."""

DOMAINS = ("com", "org", "net", "de", "co.uk", "io", "info", "at", "ch", "eu")
SUFFIXES = ("txt", "pdf", "py", "csv", "json", "jpg", "png", "mp3", "tar.gz", "docx", "html", "xml", "cpp", "zip")
