"""The routes are compatible with clients of LibreTranslate."""

from typing import Any

import pytest
from services import ENGLISH, GERMAN, Live, running

from kermit import Kermit


def test_a_text_and_a_list_are_translated(live: Live) -> None:
    one = live.post("/translate", q=ENGLISH[0], source="en", target="de", format="text", secret="ignored")
    assert one.json() == {"translatedText": GERMAN[0]}
    many = live.post("/translate", q=ENGLISH, source="en", target="de")
    assert many.json() == {"translatedText": GERMAN}
    back = live.post("/translate", q=f"{GERMAN[0]}\n{GERMAN[1]}", source="de", target="en")
    assert back.json() == {"translatedText": f"{ENGLISH[0]}\n{ENGLISH[1]}"}


def test_form_data_is_accepted(live: Live) -> None:
    answer = live.client.post("/translate", data={"q": ENGLISH[2], "source": "en", "target": "de"})
    assert answer.json() == {"translatedText": GERMAN[2]}
    assert live.client.post("/detect", data={"q": GERMAN[2]}).json()[0]["language"] == "de"


def test_the_languages_are_those_of_the_model(live: Live) -> None:
    assert live.client.get("/languages").json() == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "de", "name": "German", "targets": ["en"]},
    ]


@pytest.mark.parametrize("number", range(4))
def test_the_language_is_detected_by_which_side_is_likelier(live: Live, number: int) -> None:
    for text, code in ((ENGLISH[number], "en"), (GERMAN[number], "de")):
        best, other = live.post("/detect", q=text).json()
        assert best["language"] == code
        assert best["confidence"] >= other["confidence"] >= 0
        assert best["confidence"] + other["confidence"] == pytest.approx(100)


def test_auto_translates_from_the_detected_language(live: Live) -> None:
    found = live.post("/translate", q=[ENGLISH[2], GERMAN[3]], source="auto", target="de").json()
    assert found["translatedText"] == [GERMAN[2], GERMAN[3]]
    assert [one["language"] for one in found["detectedLanguage"]] == ["en", "de"]


def test_alternatives_are_other_translations(ordered: Live) -> None:
    found = ordered.post("/translate", q="Two men sleep.", source="en", target="de", alternatives=8).json()
    others = found["alternatives"]
    assert others
    assert len(set(others)) == len(others) <= 8
    assert found["translatedText"] not in others
    listed = ordered.post("/translate", q=["Two men sleep."], source="en", target="de", alternatives=1).json()
    assert isinstance(listed["alternatives"][0], list)


@pytest.mark.parametrize(
    ("path", "body", "error"),
    [
        ("translate", {"source": "en", "target": "de"}, "q: Field required"),
        (
            "translate",
            {"q": "a", "source": "en", "target": "fr"},
            "target: unknown language 'fr'; the model's languages are",
        ),
        ("translate", {"q": "a", "source": "fr", "target": "de"}, "source: unknown language 'fr'"),
        ("translate", {"q": "<p>a</p>", "source": "en", "target": "de", "format": "html"}, "format: Input should be"),
        ("translate", {"q": "x" * 90, "source": "en", "target": "de"}, "has 90 tokens, but may have at most 64"),
        ("translate", {"q": " ", "source": "auto", "target": "de"}, "the text is empty"),
        ("detect", {}, "q: Field required"),
        ("detect", {"q": ""}, "q: String should have at least 1"),
    ],
)
def test_errors_have_the_format_of_libretranslate(live: Live, path: str, body: dict[str, Any], error: str) -> None:
    answer = live.post(f"/{path}", **body)
    assert answer.status_code == 400
    assert error in answer.json()["error"]
    broken = live.client.post(f"/{path}", content=b"{", headers={"Content-Type": "application/json"})
    assert broken.status_code == 400
    assert "neither JSON nor a form" in broken.json()["error"]


def test_the_api_key_is_the_token(kermit: Kermit) -> None:
    with running(kermit, token="secret") as guarded:
        body = {"q": ENGLISH[0], "source": "en", "target": "de"}
        nobody = {"Authorization": ""}
        assert guarded.client.post("/translate", json=body, headers=nobody).status_code == 403
        assert guarded.client.post("/translate", json=body | {"api_key": "wrong"}).status_code == 403
        answer = guarded.client.post("/translate", json=body | {"api_key": "secret"}, headers=nobody)
        assert answer.json() == {"translatedText": GERMAN[0]}
        assert guarded.client.get("/languages", headers=nobody).status_code == 200
